/* Tokenizing requests; see prompt_ids.h. */
#include "daemon/prompt_ids.h"

/* STATUS_OVERFLOW passes through: the caller knows what to say about it. */
static enum status engine_problem(enum status status, const struct error *err, struct problem *problem)
{
    if (status && status != STATUS_OVERFLOW)
        problem_from_error(problem, err);
    return status;
}

static enum status add_id(struct engine_ids *ids, int32_t id, struct problem *problem)
{
    if (engine_ids_push(ids, id))
        return STATUS_OK;
    problem_set(problem, PROBLEM_INTERNAL, "out of memory for %zu token ids", ids->count);
    return STATUS_NO_MEMORY;
}

static enum status add_text(const struct engine *e, struct span text, bool parse_special, bool continues, size_t limit,
                            struct engine_ids *ids, struct problem *problem)
{
    struct error err;
    unsigned flags = (parse_special ? ENGINE_PARSE_SPECIAL : 0u) | (continues ? ENGINE_NO_PREFIX : 0u);
    return engine_problem(engine_tokenize(e, text, flags, limit, ids, &err), &err, problem);
}

static enum status add_ids(const struct prompt *p, const struct prompt_part *part, struct engine_ids *ids,
                           struct problem *problem)
{
    const int32_t *from = prompt_part_ids(p, part);
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < part->count && !status; i++)
        status = add_id(ids, from[i], problem);
    return status;
}

static enum status add_parts(const struct engine *e, const struct prompt *p, size_t limit, struct engine_ids *ids,
                             struct problem *problem)
{
    const struct engine_info *info = engine_info(e);
    bool text_first = p->n_parts > 0 && !p->parts[0].is_ids;
    bool text_last = p->n_parts > 0 && !p->parts[p->n_parts - 1].is_ids;
    bool after_text = false; /* SentencePiece's blank follows an id, a special token, or nothing */
    enum status status = STATUS_OK;
    if (p->add_special && text_first && info->add_bos && info->bos >= 0)
        status = add_id(ids, info->bos, problem);
    for (size_t i = 0; i < p->n_parts && !status; i++) {
        const struct prompt_part *part = &p->parts[i];
        size_t before = ids->count;
        if (part->is_ids)
            status = add_ids(p, part, ids, problem);
        else
            status = add_text(e, prompt_part_text(p, part), part->parse_special, after_text, limit, ids, problem);
        if (ids->count > before)
            after_text = !part->is_ids && !engine_is_special(e, ids->data[ids->count - 1]);
    }
    if (!status && p->add_special && text_first && text_last && info->add_eos && info->eos >= 0)
        status = add_id(ids, info->eos, problem);
    return status;
}

enum status prompt_to_ids(const struct engine *e, const struct prompt *p, size_t limit, bool room,
                          struct engine_ids *ids, struct problem *problem)
{
    size_t context = limit + (room ? 1 : 0);
    enum status status = add_parts(e, p, limit, ids, problem);
    if (status == STATUS_OVERFLOW || (!status && ids->count > limit))
        return problem_context_overflow(problem, ids->count, status == STATUS_OVERFLOW, context, room);
    if (!status && ids->count == 0)
        return prompt_refuse_empty(problem);
    return status;
}

enum status text_to_ids(const struct engine *e, struct span text, bool add_special, bool parse_special,
                        struct engine_ids *ids, struct problem *problem)
{
    const struct engine_info *info = engine_info(e);
    enum status status = STATUS_OK;
    if (add_special && info->add_bos && info->bos >= 0)
        status = add_id(ids, info->bos, problem);
    if (!status)
        status = add_text(e, text, parse_special, false, SIZE_MAX, ids, problem);
    if (!status && add_special && info->add_eos && info->eos >= 0)
        status = add_id(ids, info->eos, problem);
    return status;
}
