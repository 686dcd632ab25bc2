/* See highwater_mdd_send.h.  SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "highwater_mdd_send.h"

#if !HIGHWATER_MDD

typedef int highwater_mdd_send_is_off;

#else

/* CRC-32 as in zlib, a bit at a time: small before fast. */
static uint32_t crc32_add(uint32_t crc, const void *data, size_t bytes)
{
    const uint8_t *b = data;
    while (bytes--) {
        unsigned i;
        crc ^= *b++;
        for (i = 0; i < 8; i++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return crc;
}

struct out {
    highwater_mdd_put put;
    void *context;
    uint32_t crc, length;
    uint32_t dump; /* frames only */
    int framed;
};

/* Bytes of the dump in one frame. */
#define FRAME_BYTES 128u

static void put_le32(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
    to[2] = (uint8_t)(value >> 16);
    to[3] = (uint8_t)(value >> 24);
}

static int frame(struct out *out, uint8_t kind, uint32_t offset, const void *data, uint32_t bytes)
{
    uint8_t head[16], tail[4];
    uint32_t crc;
    int failed;
    head[0] = 'H';
    head[1] = 'W';
    head[2] = 'f';
    head[3] = kind;
    put_le32(head + 4, out->dump);
    put_le32(head + 8, offset);
    put_le32(head + 12, bytes);
    crc = crc32_add(0xffffffffu, head + 3, sizeof(head) - 3);
    crc = crc32_add(crc, data, bytes);
    put_le32(tail, ~crc);
    if ((failed = out->put(out->context, head, sizeof(head))) != 0)
        return failed;
    if (bytes && (failed = out->put(out->context, data, bytes)) != 0)
        return failed;
    return out->put(out->context, tail, sizeof(tail));
}

static int emit(struct out *out, const void *data, uint32_t bytes)
{
    const uint8_t *b = data;
    out->crc = crc32_add(out->crc, data, bytes);
    if (!out->framed) {
        out->length += bytes;
        return out->put(out->context, data, bytes);
    }
    while (bytes) {
        uint32_t part = bytes < FRAME_BYTES ? bytes : FRAME_BYTES;
        int failed = frame(out, 1, out->length, b, part);
        if (failed)
            return failed;
        out->length += part;
        b += part;
        bytes -= part;
    }
    return 0;
}

static int send_all(struct out *out)
{
    HIGHWATER_MDD_LOCK_TYPE saved;
    uint32_t trailer[2];
    unsigned i;
    int failed;
    HIGHWATER_MDD_LOCK(saved);
    failed = emit(out, &highwater_mdd, sizeof(highwater_mdd));
    for (i = 0; !failed && i < HIGHWATER_MDD_SECTIONS; i++) {
        const struct highwater_mdd_section *s = &highwater_mdd.section[i];
        if (s->addr && s->count)
            failed = emit(out, s->addr, s->count * s->entry_size);
    }
    if (!failed) {
        trailer[0] = out->length;
        trailer[1] = ~out->crc;
        failed = emit(out, "HWMDDEND", 8);
        if (!failed)
            failed = emit(out, trailer, sizeof(trailer));
    }
    if (!failed && out->framed)
        failed = frame(out, 2, out->length, NULL, 0);
    if (!failed && !out->framed) {
        /* still under the lock: nothing can have come in between */
        highwater_mdd_history_reset();
    }
    HIGHWATER_MDD_UNLOCK(saved);
    return failed;
}

int highwater_mdd_send(highwater_mdd_put put, void *context)
{
    struct out out = {0, 0, 0xffffffffu, 0, 0, 0};
    out.put = put;
    out.context = context;
    return send_all(&out);
}

int highwater_mdd_send_frames(highwater_mdd_put put, void *context)
{
    struct out out = {0, 0, 0xffffffffu, 0, 0, 1};
    out.put = put;
    out.context = context;
    out.dump = highwater_mdd.seq;
    return send_all(&out);
}

#endif
