/** The form of the tables of refusals: what the emulated driver and the emulated cards refuse or drop, each with its source. */

/** One rule: the errno or effect, when it applies, and its source if it differs from that of the function. */
export type Rule = readonly [effect: string, when: string, source?: string];

/** A function that refuses. */
export interface Refusing {
  /** The file in src/emulator, and the function with its class. */
  readonly place: string;
  /** See {@link SOURCES}. */
  readonly source: string;
  /** In the order of the source text: one for each errno, fault or stop in it. */
  readonly rules: readonly Rule[];
}

/** A row of a table. */
export function refuses(place: string, source: string, rules: readonly Rule[]): Refusing {
  return { place, source, rules };
}

/** A rule without a source in driver or specification, with the reason why the emulator has it. */
export function choice(reason: string): string {
  return `choice: ${reason}`;
}

/**
 * Where rules come from: functions of the driver of Linux 6.12 (drivers/accel/habanalabs); functions of other parts of that kernel; the vendor's driver for
 * gaudi3 (HabanaAI/drivers.accel.habanalabs.kernel); headers and tests of the vendor; an injected fault; and choices.
 */
export const SOURCES: readonly RegExp[] = [
  /^(common|gaudi|gaudi2)\/\w+\.c: \w+(, \w+)*$/,
  /^include\/(gaudi|gaudi2)\/\w+\.h: \w+/,
  /^kernel: \w+/,
  /^vendor's driver: (common|gaudi3)\/\w+\.c: \w+(, \w+)*$/,
  /^vendor's specification: [\w./]+: \w+/,
  /^injected: \w+/,
  /^choice: .{20,}$/,
];
