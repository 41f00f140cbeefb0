/** The system calls of a supervised program that need the driver: mappings, and exports of dma-bufs. The supervisor forwards them to this process. */

import {
  allocateScratch,
  CALL_RECORD_BYTES,
  close as closeFd,
  copyFromProcess,
  copyToProcess,
  descriptorFile,
  Errno,
  isSeccompListener,
  isSyscallError,
  OpenFlag,
  processOfThread,
  type ScratchBlock,
  SeccompListener,
  type UnixSocket,
} from '../../sys/index.ts';
import { HL_MEM_ARGS, ioctlSize } from '../../uapi/index.ts';
import type { LimitedLog } from '../../ucs/debug/limited-log.ts';
import { asError } from '../../ucs/type/error.ts';
import { EXPORT_FLAGS_WORD, GIVEN_WORD } from '../driver/base/ioctl-request.ts';
import type { PrimaryFile } from '../driver/ioctl/file.ts';
import { NO_ADDRESS } from '../driver/memory/user-memory.ts';
import type { EmulatedNode } from '../emulated-node.ts';
import type { DeviceTree } from './device-tree.ts';
import { SystemCall } from './seccomp-filter.ts';

const MEMORY_BYTES: number = HL_MEM_ARGS.size;

/** The services that the calls need. */
interface CallServices {
  readonly node: EmulatedNode;
  readonly tree: DeviceTree;
  readonly log: LimitedLog;
}

/** The calls that one supervisor forwards. */
export class ForwardedCalls {
  readonly #supervisor: UnixSocket;
  readonly #services: CallServices;
  readonly #record: Uint8Array = new Uint8Array(CALL_RECORD_BYTES);
  readonly #scratch: ScratchBlock = allocateScratch(MEMORY_BYTES);
  #listener: SeccompListener | undefined;

  /** Takes ownership of the connection to the supervisor. */
  constructor(supervisor: UnixSocket, services: CallServices) {
    this.#supervisor = supervisor;
    this.#services = services;
  }

  /** Handles the calls that have arrived. Returns false once the supervisor has ended, or has sent something invalid. */
  serve(): boolean {
    for (;;) {
      const fds: number[] = [];
      const count = this.#supervisor.recvmsg(this.#record, fds);
      if (count === -Errno.EAGAIN) return true;
      if (count <= 0) return false;
      if (this.#listener === undefined) {
        const [listener, ...others] = fds;
        if (listener === undefined || others.length > 0 || !isSeccompListener(listener)) {
          for (const fd of fds) closeFd(fd);
          return false;
        }
        this.#listener = new SeccompListener(listener);
      } else if (count !== CALL_RECORD_BYTES || fds.length > 0) {
        for (const fd of fds) closeFd(fd);
        return false;
      } else this.#call(this.#listener);
    }
  }

  #call(listener: SeccompListener): void {
    listener.take(this.#record);
    try {
      this.#handle(listener);
    } catch (error) {
      this.#services.log.warn(`unexpected error in a system call: ${asError(error).stack}`);
      listener.answer(-1, Errno.EIO);
    }
  }

  #handle(listener: SeccompListener): void {
    const file = this.#file(listener);
    if (file === undefined) listener.answer(-1, Errno.ENODEV);
    else if (listener.number === SystemCall.MMAP) this.#mmap(listener, file);
    else this.#export(listener, file);
  }

  /** The open primary node of the call; undefined for none. */
  #file(listener: SeccompListener): PrimaryFile | undefined {
    const { tree, node } = this.#services;
    const fd = listener.argument(listener.number === SystemCall.MMAP ? 4 : 0) | 0;
    const found = descriptorFile(listener.tid, fd);
    const device = found === undefined ? undefined : tree.device(found.ino);
    return device === undefined || device.control ? undefined : node.card(device.minor).file;
  }

  /** Checks a mapping like the driver, which rejects unknown offsets and lengths that differ from that of the buffer; then the kernel maps. */
  #mmap(listener: SeccompListener, file: PrimaryFile): void {
    try {
      const pid = processOfThread(listener.tid) ?? listener.tid;
      file.checkMmap(listener.argument(1), listener.bigArgument(5), pid);
      listener.proceed();
    } catch (error) {
      if (!isSyscallError(error)) throw error;
      listener.answer(-1, error.errno);
    }
  }

  /** Exports a dma-buf, and passes its descriptor to the program. */
  #export(listener: SeccompListener, file: PrimaryFile): void {
    const request = listener.argument(1) | 0;
    const address = listener.argument(2);
    const byteLength = Math.min(ioctlSize(request), MEMORY_BYTES);
    const { words, u8, address: local } = this.#scratch;
    u8.fill(0);
    if (copyFromProcess(listener.tid, address, local, byteLength) !== byteLength) {
      listener.answer(-1, Errno.EFAULT);
      return;
    }
    const cloexec = (words[EXPORT_FLAGS_WORD]! & OpenFlag.CLOEXEC) !== 0;
    words[EXPORT_FLAGS_WORD] = words[EXPORT_FLAGS_WORD]! | OpenFlag.CLOEXEC;
    let result = file.ioctl(request, { address: NO_ADDRESS, words: words.subarray(0, MEMORY_BYTES / 4) });
    if (result === 0) {
      const own = words[GIVEN_WORD]!;
      const given = listener.addDescriptor(own, cloexec);
      closeFd(own);
      words[GIVEN_WORD] = given;
      if (given < 0) result = given;
    }
    if (copyToProcess(listener.tid, address, local, byteLength) !== byteLength) result = -Errno.EFAULT;
    listener.answer(result < 0 ? -1 : result, result < 0 ? -result : 0);
  }

  /** Ends the connection: the supervisor answers in place of this process. */
  close(): void {
    this.#supervisor.close();
    if (this.#listener !== undefined) {
      closeFd(this.#listener.fd);
      this.#listener.free();
    }
    this.#scratch.free();
  }
}
