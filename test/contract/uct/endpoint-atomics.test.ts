import { endpointAtomicsContract } from './endpoint-atomics.ts';
import { IB_TITLE, openIb, openPosix, openSelf } from './uct-implementations.ts';

endpointAtomicsContract('self', openSelf);
endpointAtomicsContract('posix', openPosix);
endpointAtomicsContract(IB_TITLE, (log) => openIb(log));
