/**
 * Put and get between memory of a local card and host memory of the peer, through fragments: while libucp sends one window, the card copies the
 * next. The windows are those of ucp/staging.
 */

import type { CopyDone } from '../../ucp/staging/device-copier.ts';
import { type StagedWindow, WindowPipeline } from '../../ucp/staging/window-pipeline.ts';
import { Status } from '../../ucs/type/status.ts';
import type { RemoteTransfer } from '../engine/engine.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import { RequestKind, type UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';

/** Maximum number of windows in flight of one operation. */
const DEPTH = 4;

/** A put or get. */
export class Pipeline extends DeviceOperation {
  readonly #transfer: RemoteTransfer;
  readonly #windows: WindowPipeline<UcpMemory>;

  constructor(tracker: OperationTracker, request: UcpRequest, transfer: RemoteTransfer) {
    super(tracker, transfer.endpoint, request);
    this.#transfer = transfer;
    const { isPut, byteLength } = transfer;
    const { staging } = this;
    const copy = (window: StagedWindow<UcpMemory>, done: CopyDone): void => this.#copy(window, done);
    const move = (window: StagedWindow<UcpMemory>, done: CopyDone): void => this.#move(window, done);
    const steps = {
      acquire: staging.acquire.bind(staging),
      fill: isPut ? copy : move,
      drain: isPut ? move : copy,
      release: staging.release.bind(staging),
      ended: (status: Status, error: unknown) => {
        this.failure = status;
        request.error = error;
        this.end();
      },
    };
    this.#windows = new WindowPipeline(steps, [0, byteLength], {
      windowBytes: staging.fragments.fragmentBytes,
      depth: DEPTH,
    });
  }

  protected override advance(): void {
    if (this.failure === Status.OK) this.#windows.advance();
    else this.#windows.stop(this.failure);
  }

  /** Copies between the card and a fragment. */
  #copy({ fragment, from, byteLength }: StagedWindow<UcpMemory>, done: CopyDone): void {
    const { isPut, local, localOffset } = this.#transfer;
    const device = local as UcpMemory;
    this.staging.copy(!isPut, { device, offset: localOffset + from, fragment, fragmentOffset: 0, byteLength }, done);
  }

  /** Moves a window between its fragment and the peer. */
  #move(window: StagedWindow<UcpMemory>, done: CopyDone): void {
    const { isPut, rkey, remoteOffset, endpoint } = this.#transfer;
    const { requests, functions } = this.staging.worker;
    if (this.failure !== Status.OK || rkey.released) {
      done(this.failure === Status.OK ? Status.CANCELED : this.failure);
      return;
    }
    const request = requests.begin(RequestKind.SEND, isPut ? 'put/libucp' : 'get/libucp');
    if (request === undefined) {
      this.staging.schedule(() => this.#move(window, done));
      return;
    }
    const { fragment, from, byteLength } = window;
    requests.setMemh(fragment.memh);
    const remote = rkey.remoteAddress + remoteOffset + from;
    const start = isPut ? functions.ucp_put_nbx : functions.ucp_get_nbx;
    const started = start(endpoint.handle, fragment.ucpAddress, byteLength, remote, rkey.handle, requests.param);
    const status = requests.started(request, started, {
      callback: (ended, final) => {
        ended.free();
        done(final);
      },
    });
    if (typeof status === 'number') done(status);
  }
}
