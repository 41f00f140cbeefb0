import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { builtSpecifier } from '../../../test/fixtures/tools/built.ts';

const MODULE = builtSpecifier(new URL('./process-events.ts', import.meta.url));

function run(program: string): { status: number | null; stdout: string; stderr: string } {
  const flags = ['--input-type=module', '-e'];
  return spawnSync(process.execPath, [...flags, `import { atExit, atSignal } from ${MODULE}; ${program}`], {
    encoding: 'utf8',
  });
}

describe('the end of a process', () => {
  it('runs all callbacks in order, except removed ones', () => {
    const { status, stdout } = run(
      `atExit(() => console.log(1)); atExit(() => console.log(2))(); atExit(() => console.log(3));`,
    );
    expect({ status, stdout }).toEqual({ status: 0, stdout: '1\n3\n' });
  });

  it('runs the other callbacks when one throws, and reports the error', () => {
    const { status, stdout, stderr } = run(
      `atExit(() => { throw new Error('the first'); }); atExit(() => console.log('the second'));`,
    );
    expect(stdout).toBe('the second\n');
    expect(stderr).toContain('Error: the first');
    expect(status).not.toBe(0);
  });

  it('runs the callbacks after process.exit and after an exception', () => {
    expect(run(`atExit(() => console.log('end')); process.exit(3);`)).toMatchObject({ status: 3, stdout: 'end\n' });
    expect(run(`atExit(() => console.log('end')); throw new Error('no');`)).toMatchObject({
      status: 1,
      stdout: 'end\n',
    });
  });
});

describe('a signal', () => {
  it('runs its callbacks, and ends the process once they are removed', () => {
    const program = `
      const stop = atSignal('SIGUSR2', () => {
        console.log('heard');
        stop();
        process.kill(process.pid, 'SIGUSR2');
      });
      setInterval(() => {}, 1000);
      process.kill(process.pid, 'SIGUSR2');`;
    expect(run(program)).toMatchObject({ status: null, signal: 'SIGUSR2', stdout: 'heard\n' });
  });
});
