/**
 * Logging with the levels of UCX. A log is a parameter, not a global.
 *
 * Style: lower case, the cause and not a guess, always with the errno text. An error is logged once, where it is detected. Contents of memory are never logged.
 */

import { hostname } from 'node:os';
import type { Writable } from 'node:stream';
import { threadId } from 'node:worker_threads';
import { matchesItem } from '../config/list.ts';
import { wallClockMs } from '../sys/clock.ts';

/** The levels of UCX in order of severity (`ucs_log_level_t`). */
export const LogLevel = {
  FATAL: 0,
  ERROR: 1,
  WARN: 2,
  DIAG: 3,
  INFO: 4,
  DEBUG: 5,
  TRACE: 6,
  REQ: 7,
  DATA: 8,
  ASYNC: 9,
  FUNC: 10,
  POLL: 11,
} as const;

/** One of the values of {@link LogLevel}. */
export type LogLevel = (typeof LogLevel)[keyof typeof LogLevel];

/** The spelling of the levels in UCX_LOG_LEVEL, indexed by level. */
export const LOG_LEVEL_NAMES = [
  'fatal',
  'error',
  'warn',
  'diag',
  'info',
  'debug',
  'trace',
  'req',
  'data',
  'async',
  'func',
  'poll',
] as const;

/** Level of the components that match a name. */
export interface ComponentLevel {
  /** Name of a component, or a glob or range of names as in allow lists. */
  readonly component: string;
  readonly level: LogLevel;
}

/** The levels at which records are logged. */
export interface LogLevels {
  /** Level of components that match no entry of `components`. */
  readonly level: LogLevel;
  /** If several entries match a component, the last one applies. */
  readonly components: readonly ComponentLevel[];
}

/** Writes finished records; must not throw. */
export type LogSink = (level: LogLevel, component: string, message: string) => void;

/** The log of one component. */
export interface Log {
  /** Records above this level are dropped: check it before building an expensive message. */
  readonly level: LogLevel;
  error(message: string): void;
  warn(message: string): void;
  diag(message: string): void;
  info(message: string): void;
  debug(message: string): void;
  trace(message: string): void;
  /** Traces a UCP message. */
  data(message: string): void;
  /** Records output that the user has requested, such as tables, at any level. */
  print(message: string): void;
  /** A log with the same sink for another component, at the level of that component. */
  child(component: string): Log;
}

/** Creates a log that writes to `sink` every record at least as severe as `levels`. */
export function createLog(component: string, levels: LogLevel | LogLevels, sink: LogSink): Log {
  return new ComponentLog(component, typeof levels === 'number' ? { level: levels, components: [] } : levels, sink);
}

export function levelOf(levels: LogLevels, component: string): LogLevel {
  return levels.components.findLast((each) => matchesItem(each.component, component))?.level ?? levels.level;
}

class ComponentLog implements Log {
  readonly level: LogLevel;
  readonly #component: string;
  readonly #levels: LogLevels;
  readonly #sink: LogSink;

  constructor(component: string, levels: LogLevels, sink: LogSink) {
    this.level = levelOf(levels, component);
    this.#component = component;
    this.#levels = levels;
    this.#sink = sink;
  }

  error(message: string): void {
    this.#write(LogLevel.ERROR, message);
  }

  warn(message: string): void {
    this.#write(LogLevel.WARN, message);
  }

  diag(message: string): void {
    this.#write(LogLevel.DIAG, message);
  }

  info(message: string): void {
    this.#write(LogLevel.INFO, message);
  }

  debug(message: string): void {
    this.#write(LogLevel.DEBUG, message);
  }

  trace(message: string): void {
    this.#write(LogLevel.TRACE, message);
  }

  data(message: string): void {
    this.#write(LogLevel.DATA, message);
  }

  print(message: string): void {
    this.#sink(LogLevel.INFO, this.#component, message);
  }

  child(component: string): Log {
    return new ComponentLog(component, this.#levels, this.#sink);
  }

  #write(level: LogLevel, message: string): void {
    if (level <= this.level) this.#sink(level, this.#component, message);
  }
}

/** Writes records to standard error, in the form of {@link recordLine}. */
export const standardErrorSink: LogSink = (level, component, message) => {
  writeStandard(process.stderr, recordLine(level, component, message));
};

/** Writes records to standard output, in the form of {@link recordLine}. */
export const standardOutputSink: LogSink = (level, component, message) => {
  writeStandard(process.stdout, recordLine(level, component, message));
};

const SOURCE = `[${hostname().split('.', 1)[0]}:${process.pid}:${threadId}]`;
const COMPONENT_WIDTH = 16;
const LEVEL_WIDTH = 5;

/**
 * Formats a record as UCX does, with a newline: time in seconds, host, process, thread, component, level, message. Lines of several processes can be
 * merged by sorting. `[1795349709.511553] [host:29110:0]        gaudi_ipc UCX  WARN  the card is hot`
 */
export function recordLine(level: LogLevel, component: string, message: string, nowMs: number = wallClockMs()): string {
  const name = LOG_LEVEL_NAMES[level].toUpperCase().padEnd(LEVEL_WIDTH);
  return `[${(nowMs / 1000).toFixed(6)}] ${SOURCE} ${component.padStart(COMPONENT_WIDTH)} UCX  ${name} ${message}\n`;
}

/** Number of pending writes by stream; the stream has the listener {@link ignore} while the number is above 0. */
const writes = new WeakMap<Writable, number>();

/**
 * Writes `text`. If the stream is broken or full, the output is lost: output about the program must not end the program. Node.js ends a program if a stream
 * without a listener fails; only failures of these writes are ignored, those of the program's own writes are not.
 * @param stream process.stdout or process.stderr
 */
export function writeStandard(stream: Writable, text: string): void {
  const others = writes.get(stream) ?? 0;
  writes.set(stream, others + 1);
  if (others === 0) stream.on('error', ignore);
  // Node.js reports the failure to the callback first, and then to listeners.
  stream.write(text, (error) => (error instanceof Error ? setImmediate(ended, stream) : ended(stream)));
}

function ended(stream: Writable): void {
  const left = writes.get(stream)! - 1;
  writes.set(stream, left);
  if (left === 0) stream.off('error', ignore);
}

function ignore(): void {}
