/**
 * Destinations of log records: the file of UCX_LOG_FILE, or standard error without it. Files are bounded and rotated as in UCX: `log`, `log.1`, ... up
 * to the oldest.
 */

import { closeSync, existsSync, fstatSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { resolve } from 'node:path';
import { expandFileName, openOutputFile } from '../sys/file-name.ts';
import { type LogSink, recordLine, standardErrorSink, standardOutputSink } from './log.ts';

/** Options of a destination. */
export interface LogFileOptions {
  /** Empty or `stderr`, `stdout`, or a file name with the substitutions of expandFileName, optionally after `file:`. */
  readonly file: string;
  /** Maximum size of the file in bytes; Infinity for no bound. A single record that is longer is written nevertheless. */
  readonly sizeMax: number;
  /** Number of full files that are kept; 0: a full file is truncated. */
  readonly rotate: number;
  /** Time of a record in milliseconds since 1970. Default: now. */
  readonly nowMs?: () => number;
}

/**
 * The sink for a destination.
 * @throws UcxError ERR_LOG_FILE for a file that cannot be written
 */
export function openLogSink(options: LogFileOptions): LogSink {
  const name = options.file.replace(/^file:/, '');
  if (name === '' || name === 'stderr') return standardErrorSink;
  if (name === 'stdout') return standardOutputSink;
  return new LogFile(expandFileName(name), options).sink;
}

/** Log file that is opened for each record: records are rare, several contexts write to one file and rotate it, and nothing has to be closed at the end. */
class LogFile {
  readonly #path: string;
  readonly #sizeMax: number;
  readonly #rotate: number;
  readonly #nowMs: (() => number) | undefined;

  constructor(path: string, options: LogFileOptions) {
    // Resolved now, because the program may change its working directory.
    this.#path = resolve(path);
    this.#sizeMax = options.sizeMax;
    this.#rotate = options.rotate;
    this.#nowMs = options.nowMs;
    closeSync(openOutputFile(this.#path, true, { variable: 'UCX_LOG_FILE', code: 'ERR_LOG_FILE' }));
  }

  readonly sink: LogSink = (level, component, message) => {
    try {
      this.#append(recordLine(level, component, message, this.#nowMs?.()));
    } catch {
      // A full disk must not hide log records.
      standardErrorSink(level, component, message);
    }
  };

  #append(line: string): void {
    let fd = openSync(this.#path, 'a');
    try {
      const { size } = fstatSync(fd);
      if (size > 0 && size + Buffer.byteLength(line) > this.#sizeMax) {
        closeSync(fd);
        fd = -1;
        this.#rotateFiles();
        fd = openSync(this.#path, 'a');
      }
      writeSync(fd, line);
    } finally {
      if (fd >= 0) closeSync(fd);
    }
  }

  /** Rotates the files: each gets the next number, and the oldest is overwritten. */
  #rotateFiles(): void {
    for (let index = this.#rotate - 1; index >= 0; index--) {
      const from = index === 0 ? this.#path : `${this.#path}.${index}`;
      if (existsSync(from)) renameSync(from, `${this.#path}.${index + 1}`);
    }
    rmSync(this.#path, { force: true });
  }
}
