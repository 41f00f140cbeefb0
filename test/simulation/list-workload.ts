/**
 * The workload of lists of puts, and of notifications. It checks that a notification comes at most once, after those of lists that were started before
 * it, when every byte of its list is there; and that one of a list that has ended well comes, unless its connection ends.
 */

import { Status } from '../../src/ucs/type/status.ts';
import type { End } from './link.ts';
import { LocalSpace } from './local-memory.ts';
import type { Entry } from './operation-checker.ts';
import { payload } from './payload.ts';
import type { RmaWorkload, WrittenCell } from './rma-workload.ts';
import type { Schedule } from './schedule.ts';

/** Lists of one schedule use up to so many cells. */
const CELLS_MAX = 3;

/** A list that ends with a notification. */
interface Notice {
  readonly id: number;
  readonly end: End;
  readonly written: readonly WrittenCell[];
  entry: Entry | undefined;
  hasArrived: boolean;
  /** A later notification that has come before it: only one of a list that fails may be missing. */
  overtakenBy: number | undefined;
}

/** The lists of one schedule. */
export class ListWorkload {
  readonly #schedule: Schedule;
  readonly #rma: RmaWorkload;
  readonly #notices: Map<number, Notice> = new Map();

  constructor(schedule: Schedule, rma: RmaWorkload) {
    this.#schedule = schedule;
    this.#rma = rma;
    schedule.onActor.push((actor) =>
      actor.worker.setNotificationHandler(({ bytes }) => this.#arrived(new DataView(bytes.slice().buffer).getInt32(0))),
    );
  }

  /** Puts some cells as one list, or none for a notification alone. */
  put(end: End): void {
    const schedule = this.#schedule;
    const id = schedule.newId();
    const written: WrittenCell[] = [];
    const spaces: LocalSpace[] = [];
    const wanted = schedule.random.below(CELLS_MAX + 1);
    for (let i = 0; i < wanted; i++) {
      const cell = this.#rma.write(end, schedule.newId());
      if (cell === undefined) break;
      const space = new LocalSpace(schedule, end.actor, cell.byteLength, false);
      space.fill(payload(cell.version, cell.byteLength));
      written.push(cell);
      spaces.push(space);
    }
    const notifies = written.length === 0 || schedule.isOneOf(2);
    const notice: Notice = { id, end, written, entry: undefined, hasArrived: false, overtakenBy: undefined };
    if (notifies) this.#notices.set(id, notice);
    const list = written.map(({ rkey, offset, byteLength }, i) => {
      const { single, offset: localOffset } = spaces[i]!;
      return { local: single, offset: localOffset, rkey, remoteOffset: offset, byteLength };
    });
    const onEnd = (status: Status): void => {
      if (status !== Status.OK) for (const cell of written) cell.spoil();
      for (const space of spaces) space.spend();
    };
    const excuses = (status: Status): boolean => written.some((cell) => cell.excuses(status));
    const name = `list ${id} ${end} of ${written.map(({ version }) => version).join(' ')}${notifies ? ' with a notification' : ''}`;
    const flush = schedule.isOneOf(3);
    const notify = notifies ? new Uint8Array(4) : undefined;
    if (notify !== undefined) new DataView(notify.buffer).setInt32(0, id);
    const entry = schedule.start({ name, actor: end.actor, end, isWithdrawable: true, excuses, onEnd }, (params) =>
      end.endpoint.putListNbx(list, { ...params, flush, ...(notify && { notify }) }),
    );
    notice.entry = entry;
    for (const cell of written) cell.startedBy(entry);
    // The bytes are copied in the call.
    notify?.fill(0xff);
  }

  /** Checks that notifications of successful lists were not overtaken. */
  check(): void {
    for (const { id, entry, overtakenBy } of this.#notices.values()) {
      if (overtakenBy !== undefined && entry?.status === Status.OK) {
        this.#schedule.fail(`notification ${overtakenBy} came before ${id}`);
      }
    }
  }

  /** Notifications of successful lists that will certainly arrive, and have not arrived yet. */
  missing(): string[] {
    return [...this.#notices.values()]
      .filter(({ end, entry, hasArrived }) => {
        return !hasArrived && entry?.status === Status.OK && end.isReliable && end.peerActor.isActive;
      })
      .map(({ id, end }) => `the notification of list ${id} of ${end} never came`);
  }

  #arrived(id: number): void {
    const schedule = this.#schedule;
    schedule.note(`notification ${id}`);
    const notice = this.#notices.get(id);
    if (notice === undefined) schedule.fail(`a notification ${id} was not sent`);
    else if (notice.hasArrived) schedule.fail(`notification ${id} came twice`);
    else {
      notice.hasArrived = true;
      schedule.checker.lastEndNs = schedule.nowNs();
      if (notice.overtakenBy !== undefined) schedule.fail(`notification ${notice.overtakenBy} came before ${id}`);
      for (const other of this.#notices.values()) {
        if (other.id >= id || other.end !== notice.end || other.hasArrived) continue;
        other.overtakenBy ??= id;
      }
      for (const cell of notice.written) cell.expectWritten();
    }
  }
}
