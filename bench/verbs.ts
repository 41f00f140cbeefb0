/**
 * What the binding to libibverbs costs: post and poll of one inline put, beside a C loop that does the same with the same provider. The provider is made for
 * this: a real one needs a card. It takes work requests as those of cards do, copied into its queue, and completes them at once.
 */

import { existsSync } from 'node:fs';
import { allocateScratch, DynamicLibrary } from '../src/sys/index.ts';
import { QpType, SendFlag, SendWr, Sge, Wc, WcStatus, WrOpcode } from '../src/verbs/abi.ts';
import { LibibverbsContext } from '../src/verbs/libibverbs/libibverbs-context.ts';
import { type LibibverbsFunctions, loadLibibverbs } from '../src/verbs/libibverbs/library.ts';
import type { VerbsContext } from '../src/verbs/port.ts';
import { setRdma, setSgList, writeSendWr, writeSge } from '../src/verbs/work-request.ts';
import { CompilerFolder, compilerSkipReason } from '../test/fixtures/libucp/c-library.ts';
import { garbageOf } from './garbage.ts';
import { median, medianPerCallNs, type Result } from './timing.ts';

const HEADER = '/usr/include/infiniband/verbs.h';
/** Above the C loop. */
const BINDING_NS_MAX = 400;
const ROUNDS = 9;
const CALLS = 200_000;
const BYTES = 8;
const DEPTH = 64;

const PROVIDER = `
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <infiniband/verbs.h>

enum { DEPTH = ${DEPTH}, INLINE_MAX = 64 };
struct slot { uint64_t id, remote; uint32_t rkey, length; unsigned char data[INLINE_MAX]; };
static struct slot queue[DEPTH];
static unsigned head, tail;
static volatile unsigned doorbell;
static struct ibv_qp *last;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
  for (; wr != NULL; wr = wr->next) {
    struct slot *slot = &queue[head % DEPTH];
    *bad = wr;
    if (head - tail == DEPTH) return ENOMEM;
    if (wr->opcode != IBV_WR_RDMA_WRITE || wr->num_sge != 1 || wr->sg_list->length > INLINE_MAX) return EINVAL;
    slot->id = wr->wr_id;
    slot->remote = wr->wr.rdma.remote_addr;
    slot->rkey = wr->wr.rdma.rkey;
    slot->length = wr->sg_list->length;
    memcpy(slot->data, (void *)wr->sg_list->addr, wr->sg_list->length);
    head += 1;
  }
  doorbell = head;
  return 0;
}

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc) {
  int done = 0;
  for (; done < count && tail != head; done++, tail++) {
    memset(&wc[done], 0, sizeof *wc);
    wc[done].wr_id = queue[tail % DEPTH].id;
    wc[done].opcode = IBV_WC_RDMA_WRITE;
    wc[done].byte_len = queue[tail % DEPTH].length;
  }
  return done;
}

static int unsupported(void) { return EOPNOTSUPP; }

struct ibv_context *provider_open(struct ibv_device *device) {
  struct ibv_context *context = calloc(1, sizeof *context);
  context->ops.post_send = post_send;
  context->ops.poll_cq = poll_cq;
  context->ops.post_recv = (void *)unsupported;
  context->ops.post_srq_recv = (void *)unsupported;
  context->ops.req_notify_cq = (void *)unsupported;
  context->async_fd = eventfd(0, 0);
  return context;
}
int provider_close(struct ibv_context *context) { close(context->async_fd); free(context); return 0; }
struct ibv_pd *provider_pd(struct ibv_context *context) {
  struct ibv_pd *pd = calloc(1, sizeof *pd);
  pd->context = context;
  return pd;
}
struct ibv_cq *provider_cq(struct ibv_context *context, int depth, void *data, struct ibv_comp_channel *channel, int vector) {
  struct ibv_cq *cq = calloc(1, sizeof *cq);
  cq->context = context;
  return cq;
}
struct ibv_qp *provider_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) {
  struct ibv_qp *qp = calloc(1, sizeof *qp);
  qp->context = pd->context;
  qp->send_cq = init->send_cq;
  last = qp;
  return qp;
}
int provider_free(void *object) { free(object); return 0; }

/* Nanoseconds of one post and poll on the last queue pair. */
double provider_loop(int calls) {
  struct ibv_qp *qp = last;
  struct ibv_cq *cq = qp->send_cq;
  struct timespec begin, end;
  uint64_t payload = 0;
  struct ibv_sge sge = { .addr = (uintptr_t)&payload, .length = sizeof payload };
  struct ibv_send_wr *bad;
  struct ibv_wc wc[4];
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < calls; i++) {
    struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
      .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .wr.rdma = { .remote_addr = 4096, .rkey = 1 } };
    payload = i;
    if (ibv_post_send(qp, &wr, &bad) != 0) return -1;
    while (ibv_poll_cq(cq, 4, wc) != 1) { }
    if (wc[0].status != IBV_WC_SUCCESS || wc[0].wr_id != i) return -1;
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / calls;
}
`;

/** Runs the measurement; nothing without a C compiler and the header of libibverbs. Needs --expose-gc. */
export function benchVerbs(): Result[] {
  const reason = compilerSkipReason() ?? (existsSync(HEADER) ? undefined : `${HEADER} is not installed`);
  if (reason !== undefined) {
    console.log(`verbs: not measured: ${reason}`);
    return [];
  }
  using folder = new CompilerFolder();
  const library = new DynamicLibrary([folder.library('provider.so', PROVIDER, ['-O2'])]);
  const pointer = 'int64_t';
  const free: (object: number) => number = library.function('provider_free', 'int', [pointer]);
  const functions: LibibverbsFunctions = {
    ...loadLibibverbs(),
    openDevice: library.function('provider_open', pointer, [pointer]),
    closeDevice: library.function('provider_close', 'int', [pointer]),
    allocPd: library.function('provider_pd', pointer, [pointer]),
    createCq: library.function('provider_cq', pointer, [pointer, 'int', pointer, pointer, 'int']),
    createQp: library.function('provider_qp', pointer, [pointer, pointer]),
    deallocPd: free,
    destroyCq: free,
    destroyQp: free,
  };
  const context = new LibibverbsContext(functions, 'provider', 0);
  try {
    const loop: (calls: number) => number = library.function('provider_loop', 'double', ['int']);
    return measure(context, () => loop(CALLS));
  } finally {
    context.close();
  }
}

function measure(context: VerbsContext, inC: () => number): Result[] {
  const pd = context.allocPd();
  const cq = context.createCq(DEPTH, undefined);
  const type = QpType.RC;
  const limits = { maxSendWr: DEPTH, maxReceiveWr: 1, maxSendSge: 1, maxReceiveSge: 1, maxInlineBytes: BYTES };
  const qp = pd.createQp({ type, sendCq: cq, receiveCq: cq, srq: undefined, ...limits });
  const block = allocateScratch((SendWr.WORDS + Sge.WORDS) * 4 + BYTES);
  const completions = allocateScratch(Wc.WORDS * 4 * 4);
  const { address, words } = block;
  const [entry, payload] = [SendWr.WORDS, SendWr.WORDS + Sge.WORDS];
  let id = 0;
  const postAndPoll = (): void => {
    id = (id + 1) % CALLS;
    writeSendWr(words, 0, id, WrOpcode.RDMA_WRITE, SendFlag.SIGNALED | SendFlag.INLINE);
    setRdma(words, 0, 4096, 1);
    setSgList(words, 0, address + entry * 4, 1);
    writeSge(words, entry, address + payload * 4, BYTES, 0);
    words[payload] = id;
    if (qp.postSend(block, 0) !== 0) throw new Error('the put was refused');
    while (cq.poll(completions, 4) !== 1);
    if (completions.words[Wc.STATUS] !== WcStatus.SUCCESS || completions.words[Wc.WR_ID] !== id) {
      throw new Error('the put has not ended well');
    }
  };
  const ns = medianPerCallNs(ROUNDS, CALLS, postAndPoll);
  const nsInC = median(Array.from({ length: ROUNDS }, inC));
  const bytes = garbageOf(postAndPoll, 0);
  for (const object of [qp, cq, pd]) object.close();
  block.free();
  completions.free();
  return [
    {
      name: 'post + poll by libibverbs',
      value: `${ns.toFixed(0)} ns, C ${nsInC.toFixed(0)} ns`,
      ratio: undefined,
      target: `<= C + ${BINDING_NS_MAX} ns`,
      met: nsInC >= 0 && ns - nsInC <= BINDING_NS_MAX,
    },
    {
      name: 'garbage of one post + poll',
      value: `${bytes.toFixed(2)} bytes`,
      ratio: undefined,
      target: '0 bytes',
      met: bytes < 2,
    },
  ];
}
