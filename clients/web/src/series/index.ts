/** The public names of @shuffledp/client/series. */
export { SeriesClient, type SeriesOptions, type Turn } from "./client.ts";
export { type Participation } from "./participation.ts";
export { verifyCancellation, verifySeries, type Cancellation, type Series } from "./series.ts";
