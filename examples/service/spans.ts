/** A span of OpenTelemetry for every operation, from the diagnostics channels of the package. */

import { channel } from 'node:diagnostics_channel';
import { SpanKind, SpanStatusCode, type Tracer } from '@opentelemetry/api';
import { type OperationEnd, Status, statusName } from '../../src/index.ts';

/** Traces all operations of this thread. @returns ends the tracing */
export function traceOperations(tracer: Tracer): () => void {
  const onEnd = (message: unknown): void => {
    const { protocol, transport, device, byteLength, status, startNs, endNs } = message as OperationEnd;
    // The times of the message are monotonic: their difference is the duration.
    const endTime = Date.now();
    const startTime = endTime - (endNs - startNs) / 1e6;
    const attributes = {
      'ucx.transport': transport ?? 'none',
      'ucx.device': device ?? 'none',
      'ucx.bytes': byteLength,
    };
    const span = tracer.startSpan(`ucx ${protocol}`, { kind: SpanKind.CLIENT, startTime, attributes });
    if (status !== Status.OK) span.setStatus({ code: SpanStatusCode.ERROR, message: statusName(status) });
    span.end(endTime);
  };
  const ended = channel('gaudi-ucx:operation:end');
  ended.subscribe(onEnd);
  return () => ended.unsubscribe(onEnd);
}
