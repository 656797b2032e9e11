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

/**
 * One request of a call with many rows failed; others may have been answered. Mend what the message
 * says in `rows`, and send all of them again: they have ids, so whatever was done before is answered
 * as then, and nothing is counted twice.
 */
export class BatchError<Row = unknown, Result = unknown> extends ServiceError {
  /** The result of each row; undefined if there was no answer about it. Without an answer the
   * service may have done what the row asked for. */
  readonly results: (Result | undefined)[];
  /** The rows as they were given, with the ids that were made for them. */
  readonly rows: Row[];

  constructor(message: string, error: ServiceError, results: (Result | undefined)[], rows: Row[]) {
    const { status, code, field } = error;
    super(message, {
      ...(status === undefined ? {} : { status }),
      ...(code === undefined ? {} : { code }),
      ...(field === undefined ? {} : { field }),
    });
    this.name = "BatchError";
    this.results = results;
    this.rows = rows;
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
