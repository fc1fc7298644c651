/** What tests of Python call in a page. */
import { checkVectors } from "./vectors.ts";

Object.assign(globalThis, { checkVectors });
