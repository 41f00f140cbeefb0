/** Warns once for each peer whose program selected manual progress and makes none while operations wait for it. Checks at most once a second. */

/** Time without progress before a warning, and interval between two checks. */
const IDLE_MS = 1000;
/** Sleeps and checks read their clocks at different times. */
const TOLERANCE_MS = 50;
/** Limit of reported peers. */
const TOLD_MAX = 256;

/** A worker of this thread. */
export interface OwnWorker {
  /** Its name in snapshots. */
  readonly shownId: string;
  /** Whether only its program makes progress. */
  readonly isManual: boolean;
  /** Number of progress calls. */
  readonly progressCalls: number;
}

/** A peer that an operation waits for. */
export interface AwaitedPeer {
  /** Identifies its worker: see {@link IdlePeers.announce}. */
  readonly id: string;
  /** Its name in snapshots. */
  readonly shownId: string;
  /** Whether its address says that only its program makes progress. */
  readonly isManual: boolean;
  /** Whether its next progress would certainly have sent the reply, independent of its program. */
  readonly owesAnswer: boolean;
  /** Its process, or its address; undefined if the transport does not know it. */
  readonly place: string | undefined;
  /** Time for which the operation has waited. */
  readonly ageMs: number;
}

/** The workers of this thread, by id. */
const ownWorkers: Map<string, OwnWorker> = new Map();

/** The idle peers of one worker. */
export class IdlePeers {
  readonly #worker: OwnWorker;
  readonly #awaited: () => Iterable<AwaitedPeer>;
  readonly #warn: (message: string) => void;
  #lookedMs = -IDLE_MS;
  /** Progress calls of awaited workers of this thread at the last check, by their ids. */
  #calls: Map<string, number> = new Map();
  readonly #told: Set<string> = new Set();
  #id: string | undefined = undefined;

  /** @param awaited finds the peers that operations wait for */
  constructor(worker: OwnWorker, awaited: () => Iterable<AwaitedPeer>, warn: (message: string) => void) {
    this.#worker = worker;
    this.#awaited = awaited;
    this.#warn = warn;
  }

  /** Other workers may wait for this one from now on. @param id a slice of its address, or all of it, one character per byte */
  announce(id: string): void {
    this.#id = id;
    ownWorkers.set(id, this.#worker);
  }

  /**
   * Checks, if it is time: called before every sleep, and occasionally by progress.
   * @param nowMs whole milliseconds since the worker was created
   */
  look(nowMs: number): void {
    if (nowMs - this.#lookedMs < IDLE_MS - TOLERANCE_MS) return;
    this.#lookedMs = nowMs;
    const before = this.#calls;
    this.#calls = new Map();
    for (const peer of this.#awaited()) if (!this.#told.has(peer.id)) this.#check(peer, before);
  }

  /** Called when the worker is closed: it waits for no peer any more. */
  close(): void {
    if (this.#id !== undefined) ownWorkers.delete(this.#id);
  }

  #check(peer: AwaitedPeer, before: ReadonlyMap<string, number>): void {
    const isLate = peer.ageMs >= IDLE_MS - TOLERANCE_MS;
    const own = ownWorkers.get(peer.id);
    if (own === undefined) {
      if (isLate && peer.isManual && peer.owesAnswer) this.#tell(peer, peer.place ?? 'another process');
    } else if (own.isManual) {
      this.#calls.set(peer.id, own.progressCalls);
      if (isLate && before.get(peer.id) === own.progressCalls) {
        this.#tell({ ...peer, shownId: own.shownId }, 'this process');
      }
    }
  }

  #tell({ id, shownId }: AwaitedPeer, place: string): void {
    if (this.#told.size >= TOLD_MAX) return;
    this.#told.add(id);
    const remedy = "its program must call progress() or serve(), or create the worker without progress: 'manual'";
    this.#warn(`an operation waits for worker ${shownId} (${place}), which makes no progress: ${remedy}`);
  }
}
