// Formats of a few bits whose numbers are entries of codebooks, with signs or steps of their own.
#pragma once

#include "examples/llm/quant.h"
#include "examples/llm/quant_fields.h"

namespace tessera::llm {

// Of blocks [..., bytes], as Integers has them.
IntegerBlocks IntegersOfIQ1S(const Blocks& blocks);
IntegerBlocks IntegersOfIQ1M(const Blocks& blocks);
IntegerBlocks IntegersOfIQ2XXS(const Blocks& blocks);
IntegerBlocks IntegersOfIQ2XS(const Blocks& blocks);
IntegerBlocks IntegersOfIQ2S(const Blocks& blocks);
IntegerBlocks IntegersOfIQ3XXS(const Blocks& blocks);
IntegerBlocks IntegersOfIQ3S(const Blocks& blocks);

}  // namespace tessera::llm
