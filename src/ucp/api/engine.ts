/** What runs the operations of a context, as users see it. Types only. */

/** Names of the engines. */
export type EngineName = 'native' | 'libucx';

/** What runs the operations of a context. */
export interface Engine {
  /** Name of the engine. */
  readonly name: EngineName;
  /** Its release, such as `1.13.1` for libucp. */
  readonly version: string;
  /** Why this one, in words. */
  readonly reason: string;
}
