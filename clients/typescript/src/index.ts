/** Client of the decision service dyclu. */

export * from "./client.js";
export { BatchError, ServiceError } from "./errors.js";
export type { components, paths } from "./schema.js";
export type { Options } from "./sending.js";
