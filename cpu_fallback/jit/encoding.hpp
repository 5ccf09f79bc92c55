// Which encoding of x86-64's vector instructions the machine code of tree programs uses. Each instruction set's kernels name theirs
// (Kernels::encoding), and assembler.hpp writes it.
//
// VEX comes with AVX2: 16 registers of up to 32 bytes, logic of two inputs. EVEX comes with AVX-512: 32 registers of up to 64 bytes,
// logic of three inputs, longer instructions.
#pragma once

namespace gpuqs {

// none: there is no machine code, tree programs are interpreted.
enum class Encoding { none, vex, evex };

}  // namespace gpuqs
