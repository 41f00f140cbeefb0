/** Faults in the files, memory and command buffer ioctls of the emulated driver. */

import type { Area } from './fault.ts';

export const DRIVER_IOCTL: Area = {
  name: 'driver-ioctl',
  suites: ['test/contract/driver', 'src/emulator'],
  faults: [
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'short.writeBack();\n    return result;',
      after: 'return result;',
      breaks: 'a request with short arguments has its answer',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'if (this.closed) return -Errno.EBADF;',
      after: '',
      breaks: 'a closed file answers EBADF',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'if (this.card.removed) return -Errno.ENODEV;',
      after: '',
      breaks: 'a removed card answers ENODEV',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'this.card.service();\n    return this.dispatch',
      after: 'return this.dispatch',
      breaks: 'an ioctl runs what can run',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'if (injected !== 0) return -injected;',
      after: '',
      breaks: 'an injected errno is returned',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before:
        'const ticket = this.card.waiters.take(wait.remainingNs, wait.interrupt);\n      wait.writePoll(block);\n      const result = this.#pollWait(request, block, isFirst);',
      after:
        'wait.writePoll(block);\n      const result = this.#pollWait(request, block, isFirst);\n      const ticket = this.card.waiters.take(wait.remainingNs, wait.interrupt);',
      breaks: 'a wait is armed before it looks',
      equivalent:
        'Nothing runs between the two: the thread does not return to the event loop, and an engine that ends in between leaves its request.',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'ticket.cancel();\n        if (holdsSlot) this.card.multiWaits -= 1;\n        return result;',
      after: 'if (holdsSlot) this.card.multiWaits -= 1;\n        return result;',
      breaks: 'a wait that is over leaves no timer',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'ticket.cancel();\n        if (holdsSlot) this.card.multiWaits -= 1;\n        return result;',
      after: 'ticket.cancel();\n        return result;',
      breaks: 'a multi-wait that ends gives its place back',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'if (interruption?.raised === true) {\n        if (holdsSlot) this.card.multiWaits -= 1;',
      after: 'if (interruption?.raised === true) {',
      breaks: 'a multi-wait that is interrupted gives its place back',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'this.card.multiWaits += 1;\n      }',
      after: '}',
      breaks: 'a multi-wait takes a place',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'this.userMemory.caller = caller;',
      after: '',
      breaks: 'a wait reads the memory of its caller',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'if (this.context.closed) return abortedWait(block);',
      after: '',
      breaks: 'a wait whose file is closed ends',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'this.#notifier.close();',
      after: '',
      breaks: 'the event fd of a file is released with it',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'this.card.notifiers.delete(this.#notifier);',
      after: '',
      breaks: 'a closed file hears of no events',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: "if (this.card.removed) throw new SyscallError('mmap', Errno.ENODEV, 'the device was removed');",
      after: '',
      breaks: 'memory of a removed card is not mapped',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'this.words.fill(0, given, end);',
      after: '',
      breaks: 'what the program did not give is zero',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'words.set(this.words.subarray(0, this.#given));',
      after: 'words.set(this.words.subarray(0, this.#end));',
      breaks: 'what the program did not give is not written',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'given >= end || given > block.words.length',
      after: 'given > end || given > block.words.length',
      breaks: 'a request with all arguments is not copied',
      equivalent: 'A copy of all words has the same effect.',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'if (ioctlSize(request) > block.words.length * 4) return -Errno.EFAULT;',
      after: '',
      breaks: 'a request that gives more than the block has is EFAULT',
    },
    {
      file: 'src/emulator/driver/ioctl/file.ts',
      before: 'number !== IoctlIndex.INFO) return -Errno.ENOTTY;',
      after: 'number !== IoctlIndex.INFO) return -Errno.EINVAL;',
      breaks: 'a control node answers INFO only',
    },
    {
      file: 'src/emulator/driver/ioctl/memory.ts',
      before: 'if (context.card.status !== HL_DEVICE_STATUS.OPERATIONAL) return -Errno.EBUSY;',
      after: '',
      breaks: 'MEMORY on a card that is not operational is EBUSY',
    },
    {
      file: 'src/emulator/driver/ioctl/memory.ts',
      before: 'if (byteLength === 0) return -Errno.EINVAL;',
      after: '',
      breaks: 'an allocation of nothing is refused',
    },
    {
      file: 'src/emulator/driver/ioctl/memory.ts',
      before: 'return 0 - (context.deviceMemory.unmap(address) ?? Errno.EINVAL);',
      after: 'return 0 - (context.deviceMemory.unmap(address) ?? 0);',
      breaks: 'an address that is not mapped is refused',
    },
    {
      file: 'src/emulator/driver/ioctl/memory.ts',
      before: 'words[OUT.fd] = -Errno.EBADF;',
      after: '',
      breaks: 'an export that fails has no descriptor',
    },
    {
      file: 'src/emulator/driver/ioctl/memory.ts',
      before: 'if (count > TS_MAX_ELEMENTS_NUM) return -Errno.EINVAL;',
      after: '',
      breaks: 'timestamps have a limit',
    },
    {
      file: 'src/emulator/driver/ioctl/memory.ts',
      before: 'if (count === 0) return -Errno.ENOMEM;',
      after: 'if (count === 0) return -Errno.EINVAL;',
      breaks: 'no timestamps are ENOMEM',
    },
    {
      file: 'src/emulator/driver/ioctl/memory.ts',
      before: 'count * TIMESTAMP_BYTES',
      after: 'count',
      breaks: 'timestamps have 8 bytes',
    },
    {
      file: 'src/emulator/driver/ioctl/memory.ts',
      before: 'if (!context.card.config.importDmabuf) return -Errno.EINVAL;',
      after: '',
      breaks: 'imports exist in the driver of the vendor only',
    },
    {
      file: 'src/emulator/driver/ioctl/memory.ts',
      before: "if (typeof mapped === 'number') return -mapped;",
      after: "if (typeof mapped === 'number') return mapped;",
      breaks: 'an errno is negative',
    },
    {
      file: 'src/emulator/driver/ioctl/command-buffer.ts',
      before: 'if (byteLength > HL_MAX_CB_SIZE) return -Errno.EINVAL;',
      after: 'if (byteLength >= HL_MAX_CB_SIZE) return -Errno.EINVAL;',
      breaks: 'a command buffer has at most 2 MiB',
    },
    {
      file: 'src/emulator/driver/ioctl/command-buffer.ts',
      before: 'context.buffers.destroy(buffer);\n      return -Errno.ENOMEM;',
      after: 'return -Errno.ENOMEM;',
      breaks: 'a buffer that cannot be mapped is destroyed',
    },
    {
      file: 'src/emulator/driver/ioctl/command-buffer.ts',
      before: 'if (buffer === undefined || buffer.destroyed) return -Errno.EINVAL;',
      after: 'if (buffer === undefined) return -Errno.EINVAL;',
      breaks: 'a buffer is destroyed once',
    },
    {
      file: 'src/emulator/driver/ioctl/command-buffer.ts',
      before: '|| (wantsAddress && buffer.deviceAddress === 0n)) return',
      after: ') return',
      breaks: 'a buffer without an address has none',
    },
    {
      file: 'src/emulator/driver/ioctl/command-buffer.ts',
      before: 'wantsMap && !context.card.profile.capabilities.mappedKernelCb',
      after: 'false',
      breaks: 'gaudi maps no command buffers of the driver',
    },
  ],
};
