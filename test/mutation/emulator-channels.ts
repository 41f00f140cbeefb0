/** Faults of the DMA engines and PDMA channels of emulated cards. */

import type { Area } from './fault.ts';

export const EMULATOR_CHANNELS: Area = {
  name: 'emulator-channels',
  suites: ['test/contract/driver/driver-file', 'src/emulator/device'],
  faults: [
    {
      file: 'src/emulator/device/channel/pqm-executor.ts',
      before: "if ((control & LinPdmaCtl.UNKNOWN_MASK) !== 0) return 'failed';",
      after: '',
      breaks: 'a transfer with bits that are not public is refused',
    },
    {
      file: 'src/emulator/device/command/linear-dma.ts',
      before: '    const target = map.memory;\n',
      after: "    const target = map.memory;\n    if (source.isHost && target.isHost) return 'next';\n",
      breaks: 'a card copies from host to host',
    },
    {
      file: 'src/emulator/device/memory/memory-access.ts',
      before: 'if (targetSpace === DIRECT) return readAddressSpace(',
      after: 'if (targetSpace === sourceSpace || targetSpace === DIRECT) return readAddressSpace(',
      breaks: 'both sides of a copy are in one other process',
    },
    {
      file: 'src/emulator/device/memory/memory-access.ts',
      before: '    done += written;\n',
      after: '    done += wanted;\n',
      breaks: 'a copy between address spaces counts the bytes before a missing page',
    },
    {
      file: 'src/emulator/device/memory/traffic.ts',
      before: 'if (target.isHost) {',
      after: 'if (target.isHost && !source.isHost) {',
      breaks: 'a copy from host to host is counted in both directions',
    },
    {
      file: 'src/emulator/device/queue/strided-transfer.ts',
      before: 'this.#indices[dimension] = next < count ? next : 0;',
      after: 'this.#indices[dimension] = next;',
      breaks: 'the rows of an inner dimension begin again in each step of an outer one',
    },
    {
      file: 'src/emulator/device/channel/pdma-channel.ts',
      before: "    if (count < decrement) return 'underflow';\n",
      after: '',
      breaks: 'a fence does not become negative',
    },
    {
      file: 'src/emulator/device/channel/pdma-channel.ts',
      before: 'return sum <= PDMA_FENCE_MAX;',
      after: 'return true;',
      breaks: 'a fence that overflows is an error',
    },
    {
      file: 'src/emulator/device/channel/pdma-channel.ts',
      before: 'if (index === FIFO_CFG) this.#clearRing();\n    else if (index >= COMPLETION_CFG',
      after: 'if (index >= COMPLETION_CFG',
      breaks: 'a write of the mode clears the ring',
    },
    {
      file: 'src/emulator/device/channel/pdma-channel.ts',
      before: 'this.#words[COMPLETION_HIGH] = REGISTERS_HIGH;',
      after: '',
      breaks: 'the high word of write completions has its reset value',
    },
    {
      file: 'src/emulator/device/channel/pqm-executor.ts',
      before: 'if ((control & LinPdmaCtl.COMMIT) === 0 || ',
      after: 'if (',
      breaks: 'a transfer without its commit bit is refused',
    },
    {
      file: 'src/emulator/device/channel/pqm-executor.ts',
      before: "        if (!channel.drained) return 'blocked';\n        const isInRegister",
      after: '        const isInRegister',
      breaks: 'a write completion follows the data',
    },
    {
      file: 'src/emulator/device/channel/pqm-executor.ts',
      before: "if (!isStrict && !channel.drained) return 'blocked';",
      after: "if (!channel.drained) return 'blocked';",
      breaks: 'messages overtake data on a strict card',
    },
    {
      file: 'src/emulator/device/channel/pqm-executor.ts',
      before: 'channel.bulkRegister = holds ? ownRegister(control) : NO_REGISTER;',
      after: 'channel.bulkRegister = ownRegister(control);',
      breaks: 'a bulk whose predicate does not hold writes nothing',
    },
    {
      file: 'src/emulator/device/channel/pqm-executor.ts',
      before: 'channel.bulkLeft = value & 0xffff;',
      after: 'channel.bulkLeft = holds ? value & 0xffff : 0;',
      breaks: 'the values of a bulk whose predicate does not hold are not packets',
    },
    {
      file: 'src/emulator/device/channel/pqm-executor.ts',
      before: 'if (channel.drained) channel.isCounterLoaded = false;',
      after: '',
      breaks: 'a program may change the counter of an idle channel',
    },
    {
      file: 'src/emulator/device/channel/pqm-executor.ts',
      before: "if (channel.stopped) return 'failed';",
      after: '',
      breaks: 'a fault stops the channel',
    },
    {
      file: 'src/emulator/device/channel/channel-engine.ts',
      before: 'Math.min(contiguous, channel.pendingBytes)',
      after: 'contiguous',
      breaks: 'packets are not read before they are submitted',
    },
    {
      file: 'src/emulator/device/channel/channel-engine.ts',
      before: '|| channel.producer < channel.consumer',
      after: '',
      breaks: 'an index that goes backwards is an error',
    },
    {
      file: 'src/emulator/device/channel/channel-engine.ts',
      before: "    if (bytes > available) return 'blocked';\n",
      after: '',
      breaks: 'a packet is executed when all of it is submitted',
    },
    {
      file: 'src/emulator/device/channel/channel-engine.ts',
      before: '    if (!channel.drained) {\n      channel.isErrorDue = true;',
      after: '    if (false as boolean) {\n      channel.isErrorDue = true;',
      breaks: 'an error is reported when the channel moves no more data',
    },
    {
      file: 'src/emulator/device/register-file.ts',
      before: 'return this.#managers[i]!.isOfUsers(offset);',
      after: 'return true;',
      breaks: 'packets do not write sync objects of the driver',
    },
    {
      file: 'src/emulator/device/channel/pdma-channel.ts',
      before: '  halt(): void {\n    this.stopped = true;\n',
      after: '  halt(): void {\n',
      breaks: 'a card that has failed moves no more data',
    },
  ],
};
