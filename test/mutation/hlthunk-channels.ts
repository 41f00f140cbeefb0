/** Faults of the route of DMA over PDMA channels. */

import type { Area } from './fault.ts';

export const HLTHUNK_CHANNELS: Area = {
  name: 'hlthunk-channels',
  suites: ['test/contract/driver', 'gaudi-ipc'],
  faults: [
    {
      file: 'src/hlthunk/dma/dma.ts',
      before:
        'for (const queue of this.#queues) queue.disconnect();\n    for (const queue of this.#queues) queue.abort(status);',
      after:
        'for (const queue of this.#queues) queue.abort(status);\n    for (const queue of this.#queues) queue.disconnect();',
      breaks: 'channels are stopped before callbacks may unmap memory',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: 'if ((this.#count | 0) === this.completed) this.#seenNs = -1;',
      after: '',
      breaks: 'a batch after a pause has its own time',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: 'this.#submitted >= this.#restartBytes && this.#isConsumed',
      after: 'this.#submitted >= 2 ** 32 && this.#isConsumed',
      breaks: 'the producer index does not come near to 2^32',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: ' && this.#isConsumed) this.#startRing();',
      after: ') this.#startRing();',
      breaks: 'the ring starts anew only after the channel has written its consumer index',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: '    registers.write(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, RING_IN_MEMORY);\n',
      after:
        '    registers.write(PdmaChannelA.MSQ_CI, 0);\n    registers.write(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, RING_IN_MEMORY);\n',
      breaks: 'a ring that starts anew does not submit its old packets again',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: '    if (this.#submitted >= this.#restartBytesMax) return 0;\n',
      after: '',
      breaks: 'a ring that never becomes empty is drained before the index wraps',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: 'inFlight === 0 && this.#submitted',
      after: 'this.#submitted',
      breaks: 'the ring starts anew only when it is empty',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: 'this.#starts[(nextSlot - inFlight) & (this.slots - 1)]!',
      after: 'this.#starts[nextSlot]!',
      breaks: 'batches in flight occupy the ring',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: 'if (at + LIN_PDMA_WORDS <= ringWords) return first + at;',
      after: 'return first + at;',
      breaks: 'no packet crosses the end of the ring',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: 'this.#control | LinPdmaCtl.ADVANCE_COUNTER;',
      after: 'this.#control;',
      breaks: 'the last transfer of a batch counts',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: '      configuration |= EcmpltnCfg.LBW_WRITE;\n',
      after: '',
      breaks: 'completions raise the interrupt',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: '    registers.close();\n  }',
      after: '  }',
      breaks: 'the block is unmapped before the card is closed',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: '    if (this.#isLooking) return;\n',
      after: '',
      breaks: 'one look is pending at a time',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: '    if (lost === 0 && result < 0) this.#lookLater();\n    else this.#onWatched(lost);',
      after: '    this.#onWatched(lost);',
      breaks: 'a driver that rejects waits is not called in a loop',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: '=== HL_DEVICE_STATUS.OPERATIONAL ? 0',
      after: '=== HL_DEVICE_STATUS.IN_RESET ? 0',
      breaks: 'a card in reset ends the batches',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: '    this.#registers.write(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, 0);\n    return this.#isLost',
      after: '    return this.#isLost',
      breaks: 'a channel that timed out fetches nothing more',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: 'this.#submitted = registers.read(PdmaChannelA.MSQ_CI) >>> 0;',
      after: 'this.#submitted = 0;',
      breaks: 'the ring continues where the hardware has its index',
    },
    {
      file: 'src/hlthunk/dma/channels.ts',
      before: '      if (this.#taken.has(channel)) continue;\n',
      after: '',
      breaks: 'each direction has its own channel',
    },
    {
      file: 'src/hlthunk/dma/channels.ts',
      before: 'if (registers.read(PdmaChannelA.DESC_SUBMIT_FIFO_CFG) !== 0) {',
      after: 'if (registers.byteLength === 0) {',
      breaks: 'a channel that other code uses is left alone',
    },
    {
      file: 'src/hlthunk/dma/channels.ts',
      before: '((this.#mask >>> channel) & 1) !== 0',
      after: '((this.#channels.userMask >>> channel) & 1) !== 0',
      breaks: 'the mask of the driver decides',
    },
    {
      file: 'src/hlthunk/dma/channels.ts',
      before: '      this.#taken.delete(opened.channel);\n',
      after: '',
      breaks: 'a channel that could not be set up is free again',
    },
    {
      file: 'src/hlthunk/dma/faults.ts',
      before: '&& fault.signals <= records.length',
      after: '',
      breaks: 'if there are fewer records than faults, all transfers in flight are suspects',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: 'this.#isLost ? Math.min(LOST_NS, this.#options.timeoutNs) : this.#options.timeoutNs',
      after: 'this.#options.timeoutNs',
      breaks: 'a hung channel of a card that will be reset ends soon',
    },
    {
      file: 'src/hlthunk/dma/channel-route.ts',
      before: '    this.#device.checkFaults();\n',
      after: '',
      breaks: 'a poll reads the fault that stops the channel',
    },
  ],
};
