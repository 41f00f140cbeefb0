import { describe, expect, it, vi } from 'vitest';
import { createLog, LOG_LEVEL_NAMES, LogLevel, standardErrorSink } from './log.ts';

describe('createLog', () => {
  it('passes records up to its level and drops the rest', () => {
    const records: string[] = [];
    const log = createLog('uct', LogLevel.INFO, (level, component, message) =>
      records.push(`${LOG_LEVEL_NAMES[level]} ${component} ${message}`),
    );
    log.error('1');
    log.warn('2');
    log.diag('3');
    log.info('4');
    log.debug('5');
    log.trace('6');
    expect(records).toEqual(['error uct 1', 'warn uct 2', 'diag uct 3', 'info uct 4']);
  });

  it('shares level and sink with its children', () => {
    const sink = vi.fn();
    const child = createLog('uct', LogLevel.ERROR, sink).child('uct.gaudi');
    expect(child.level).toBe(LogLevel.ERROR);
    child.warn('dropped');
    child.error('kept');
    expect(sink.mock.calls).toEqual([[LogLevel.ERROR, 'uct.gaudi', 'kept']]);
  });

  it('has levels of components', () => {
    const sink = vi.fn();
    const components = [{ component: 'gaudi_*', level: LogLevel.DEBUG }];
    const log = createLog('ucp', { level: LogLevel.WARN, components }, sink);
    expect([log.level, log.child('gaudi_ipc').level, log.child('gaudi_ipc').child('ucp').level]).toEqual([2, 5, 2]);
    log.debug('dropped');
    log.child('gaudi_ipc').debug('kept');
    expect(sink.mock.calls).toEqual([[LogLevel.DEBUG, 'gaudi_ipc', 'kept']]);
  });

  it('names every level', () => {
    expect(Object.keys(LogLevel).map((name) => name.toLowerCase())).toEqual([...LOG_LEVEL_NAMES]);
  });
});

describe('standardErrorSink', () => {
  it('writes one line', () => {
    const write = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    try {
      standardErrorSink(LogLevel.WARN, 'ucp', 'no such variable');
      expect(write).toHaveBeenCalledWith(
        expect.stringMatching(/^\[\d{10}\.\d{6}\] \[[^:]+:\d+:\d+\] {14}ucp UCX {2}WARN {2}no such variable\n$/),
        expect.any(Function),
      );
    } finally {
      write.mockRestore();
    }
  });
});
