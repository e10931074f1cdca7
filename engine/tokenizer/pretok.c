#include "engine/tokenizer/pretok.h"

enum status pretok_find(struct span name, const struct pretok_row **out, struct error *err)
{
    char quoted[ERROR_QUOTE_BYTES];
    *out = NULL;
    return error_set(err, STATUS_UNSUPPORTED, "tokenizer.ggml.pre \"%s\" is not supported yet",
                     error_quote(name.data, name.size, quoted));
}
