/** The interface of an engine, which runs the operations of a context. Types only. */

/** Names of the engines. */
export type EngineName = 'native' | 'libucx';

/** An engine of a context. */
export interface Engine {
  /** Name of the engine. */
  readonly name: EngineName;
  /** Its release, such as `1.13.1` for libucp. */
  readonly version: string;
  /** Why this engine was selected. */
  readonly reason: string;
}
