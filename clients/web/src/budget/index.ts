/** The public names of @shuffledp/client/budget. */
export { Budget, BudgetRefusal, type AuthorLimits, type Limits } from "./budget.ts";
export { IndexedDbRecord, type RecordStore } from "../record_store.ts";
