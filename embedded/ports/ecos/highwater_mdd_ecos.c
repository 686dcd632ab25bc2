/* See highwater_mdd_ecos.h.  SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "highwater_mdd_ecos.h"
#include "highwater_mdd.h"

const char *highwater_mdd_ecos_name(uintptr_t thread)
{
    static cyg_thread_info info;
    if (!thread)
        return "boot";
    /* id 0: whatever thread has this handle; called under the scheduler lock */
    if (!cyg_thread_get_info((cyg_handle_t)thread, 0, &info) || !info.name)
        return "";
    return info.name;
}
