/**
 * Counters of rejected submissions by reason (struct hl_cs_counters of the driver). The decisions are elsewhere.
 */

/** One set of counters: those of a context, or sums of several. */
export class CsCounters {
  outOfMemory = 0;
  parsing = 0;
  queueFull = 0;
  inReset = 0;
  maxCsInFlight = 0;
  validation = 0;

  /** Adds another set to this one. */
  add(other: CsCounters): void {
    this.outOfMemory += other.outOfMemory;
    this.parsing += other.parsing;
    this.queueFull += other.queueFull;
    this.inReset += other.inReset;
    this.maxCsInFlight += other.maxCsInFlight;
    this.validation += other.validation;
  }
}
