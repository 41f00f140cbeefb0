/** File of a report: opened before the first test, written after the last. page.ts makes its contents. */

import { closeSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, hostname } from 'node:os';
import { packageVersion } from '../../../ucs/sys/package.ts';
import { asError, invalidParam } from '../../../ucs/type/error.ts';
import type { Measurement } from '../measure/meter.ts';
import type { TestSpec } from '../options/spec.ts';
import { reportPage } from './page.ts';
import { SeriesCollector } from './series.ts';

/** A report. */
export class ReportFile {
  readonly #path: string;
  readonly #fd: number;
  readonly #collector: SeriesCollector = new SeriesCollector();
  readonly #time: Date = new Date();
  #emulated = false;

  /** @throws UcxError ERR_INVALID_PARAM for a file that cannot be written */
  constructor(path: string) {
    this.#path = path;
    try {
      this.#fd = openSync(path, 'w');
    } catch (error) {
      throw invalidParam('--report', `must name a file that can be written (${asError(error).message})`, path);
    }
  }

  /** A test begins. */
  begin(emulated: boolean): void {
    this.#emulated ||= emulated;
  }

  /** A test has ended. */
  add(spec: TestSpec, measurement: Measurement, carrier: string): void {
    this.#collector.add(spec, measurement, carrier);
  }

  /** Writes the report. */
  write(): void {
    const page = reportPage(this.#collector.series, {
      time: this.#time,
      command: `gaudi-ucx ${process.argv.slice(2).join(' ')}`,
      host: hostname(),
      cpu: `${cpus().length} x ${cpus()[0]?.model ?? 'unknown'}`,
      node: process.version,
      version: packageVersion(),
      emulated: this.#emulated,
    });
    writeFileSync(this.#fd, page);
    closeSync(this.#fd);
  }

  /** Removes the file after a failure. */
  discard(): void {
    closeSync(this.#fd);
    rmSync(this.#path, { force: true });
  }
}
