import { endpointAtomicsContract } from './endpoint-atomics.ts';
import { openIb, openPosix, openSelf } from './uct-implementations.ts';

endpointAtomicsContract('self', openSelf);
endpointAtomicsContract('posix', openPosix);
endpointAtomicsContract('ib on emulated devices', (log) => openIb(log));
