/** The service refused a request, or could not be reached. */
export class ServiceError extends Error {
  /** The HTTP status; undefined if there was no answer. */
  readonly status: number | undefined;
  /** The service's code for the refusal. */
  readonly code: string | undefined;
  /** The part of the request that is wrong. */
  readonly field: string | undefined;

  constructor(message: string, more: { status?: number; code?: string; field?: string } = {}) {
    super(message);
    this.name = "ServiceError";
    this.status = more.status;
    this.code = more.code;
    this.field = more.field;
  }
}

/** The error for a refusal, from its status and the `error` of the answer. */
export function refusal(status: number, problem: unknown): ServiceError {
  const told = (problem ?? {}) as { message?: unknown; code?: unknown; field?: unknown };
  return new ServiceError(String(told.message ?? "refused"), {
    status,
    ...(typeof told.code === "string" ? { code: told.code } : {}),
    ...(typeof told.field === "string" ? { field: told.field } : {}),
  });
}
