/* See lenient_utf8.h. */
#include "engine/tokenizer/lenient_utf8.h"

#include <string.h>

size_t lenient_decode(const char *data, size_t size, uint32_t *code_point)
{
    const unsigned char *p = (const unsigned char *)data;
    size_t length = p[0] >= 0xf8 ? 1 : lenient_length(p[0]);
    *code_point = p[0] < 0x80 ? p[0] : 0xfffd;
    if (length == 1 || length > size)
        return 1;
    uint32_t c = p[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 1;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c > 0x10ffff)
        return 1;
    *code_point = c;
    return length;
}

bool lenient_is_clean(struct span text)
{
    for (size_t i = 0; i < text.size;) {
        uint64_t eight;
        if (text.size - i >= 8) {
            memcpy(&eight, text.data + i, 8);
            if ((eight & 0x8080808080808080ull) == 0) {
                i += 8;
                continue;
            }
        }
        uint32_t c;
        size_t n = lenient_decode(text.data + i, text.size - i, &c);
        char again[4];
        if (lenient_encode(c, again) != n) /* each form of a character has another length */
            return false;
        i += n;
    }
    return true;
}

void lenient_clean(struct span text, struct buffer *out)
{
    for (size_t i = 0; i < text.size;) {
        uint32_t c;
        char bytes[4];
        i += lenient_decode(text.data + i, text.size - i, &c);
        buffer_append(out, bytes, lenient_encode(c, bytes));
    }
}
