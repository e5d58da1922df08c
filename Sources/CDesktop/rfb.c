// RFC 6143 (RFB 3.8), and for fences, the extended desktop size, the pointer's position and the
// extended clipboard the RFB community's protocol description (rfbproto). libvncclient does the
// handshake, buffers reads, times them out, and handles the messages that we ignore. Updates are read
// here, because libvncclient requests the next one after each, drops the rectangle with the pointer's
// position, and copies every pixel twice. It supports the extended clipboard only from 0.9.15 on.
#define _GNU_SOURCE // ppoll
#include "include/CDesktop.h"
#include "libraries.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    UPDATE = 0,
    CUT_TEXT = 3,
    FENCE = 248,

    RAW = 0,
    DESKTOP_SIZE = -223,
    EXTENDED_DESKTOP_SIZE = -308,
    FENCES = -312,
    POINTER_POSITION = 0x574d5666,
    EXTENDED_CLIPBOARD = (int)0xc0a1e5ce,

    FENCE_PAYLOAD = 64,
    CUT_TEXT_LIMIT = 64 << 20,
    // Compressed; a longer one is skipped.
    CLIPBOARD_LIMIT = 4 << 20,
};
#define FENCE_REQUEST (1u << 31)
#define FENCE_FLAGS 7u

struct wd_rfb {
    rfbClient *client;
    struct wd_rfb_state state;
    uint8_t *target;
    struct wd_bytes clipboard; // as it came: compressed
    char why[160];
    uint8_t scrap[16384];
};

static bool lost(struct wd_rfb *rfb, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool lost(struct wd_rfb *rfb, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rfb->why, sizeof rfb->why, format, arguments);
    va_end(arguments);
    return false;
}

static bool get(struct wd_rfb *rfb, void *bytes, size_t count) {
    // The length is an unsigned int; no caller has more.
    if (wd_vnc.ReadFromRFBServer(rfb->client, bytes, (unsigned)count)) {
        return true;
    }
    return lost(rfb, "the server closed the connection or sent half a message");
}

static bool skip(struct wd_rfb *rfb, size_t count) {
    while (count > 0) {
        size_t some = count < sizeof rfb->scrap ? count : sizeof rfb->scrap;
        if (!get(rfb, rfb->scrap, some)) {
            return false;
        }
        count -= some;
    }
    return true;
}

static uint16_t be16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static uint32_t be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static void put16(uint8_t *p, unsigned value) {
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}
static void put32(uint8_t *p, uint32_t value) {
    put16(p, value >> 16);
    put16(p + 2, value & 0xffff);
}

static char *no_password(rfbClient *client) {
    (void)client;
    return NULL; // libvncclient would ask on the terminal
}

static bool announce(struct wd_rfb *rfb) {
    // Blue, green, red and an unused byte: what Xvnc has itself, so that it converts nothing.
    static const uint8_t format[20] = {0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0};
    static const int32_t encodings[] = {RAW, DESKTOP_SIZE, EXTENDED_DESKTOP_SIZE, FENCES,
                                        POINTER_POSITION, EXTENDED_CLIPBOARD};
    enum { COUNT = sizeof encodings / sizeof encodings[0] };
    uint8_t message[4 + 4 * COUNT] = {2, 0, 0, COUNT};
    for (int i = 0; i < COUNT; i++) {
        put32(message + 4 + 4 * i, (uint32_t)encodings[i]);
    }
    return wd_rfb_write(rfb, format, sizeof format) && wd_rfb_write(rfb, message, sizeof message);
}

struct wd_rfb *wd_rfb_open(int fd, unsigned read_seconds, char *why, size_t capacity) {
    struct wd_rfb *rfb = calloc(1, sizeof *rfb);
    rfbClient *client = rfb == NULL ? NULL : wd_vnc.rfbGetClient(8, 3, 4);
    if (client == NULL) {
        snprintf(why, capacity, "out of memory");
        free(rfb);
        close(fd);
        return NULL;
    }
    rfb->client = client;
    client->sock = fd;
    client->readTimeout = read_seconds;
    client->appData.shareDesktop = TRUE;
    client->GetPassword = no_password;
    static const uint32_t none[] = {rfbNoAuth};
    wd_vnc.SetClientAuthSchemes(client, none, 1);
    if (!wd_vnc.InitialiseRFBConnection(client)) {
        snprintf(why, capacity, "no VNC server without a password answered");
        wd_rfb_close(rfb);
        return NULL;
    }
    rfb->state.width = client->si.framebufferWidth;
    rfb->state.height = client->si.framebufferHeight;
    if (rfb->state.width == 0 || rfb->state.height == 0 || !announce(rfb)) {
        snprintf(why, capacity, "the VNC server has no screen or closed the connection");
        wd_rfb_close(rfb);
        return NULL;
    }
    return rfb;
}

void wd_rfb_close(struct wd_rfb *rfb) {
    wd_vnc.rfbClientCleanup(rfb->client); // closes the socket too
    free(rfb->clipboard.bytes);
    free(rfb);
}

const struct wd_rfb_state *wd_rfb_get_state(const struct wd_rfb *rfb) { return &rfb->state; }
const char *wd_rfb_why(const struct wd_rfb *rfb) { return rfb->why; }
bool wd_rfb_buffered(const struct wd_rfb *rfb) { return rfb->client->buffered > 0; }
void wd_rfb_set_target(struct wd_rfb *rfb, uint8_t *bgrx) { rfb->target = bgrx; }

bool wd_rfb_write(struct wd_rfb *rfb, const void *bytes, size_t count) {
    if (wd_vnc.WriteToRFBServer(rfb->client, bytes, (unsigned)count)) {
        return true;
    }
    return lost(rfb, "the server closed the connection");
}

bool wd_rfb_request(struct wd_rfb *rfb, bool changed, int x, int y, int width, int height) {
    uint8_t message[10] = {3, changed};
    put16(message + 2, (unsigned)x);
    put16(message + 4, (unsigned)y);
    put16(message + 6, (unsigned)width);
    put16(message + 8, (unsigned)height);
    rfb->state.pixels = 0;
    return wd_rfb_write(rfb, message, sizeof message);
}

static bool resize(struct wd_rfb *rfb, int width, int height) {
    if (width == 0 || height == 0) {
        return lost(rfb, "the server announced a screen of %d by %d pixels", width, height);
    }
    if (width != rfb->state.width || height != rfb->state.height) {
        rfb->state.width = width;
        rfb->state.height = height;
        rfb->state.resizes++;
        rfb->target = NULL;
    }
    return true;
}

// The size and the server's screens; `reason` 1 answers our SetDesktopSize.
static bool read_desktop_size(struct wd_rfb *rfb, int reason, int status, int width, int height) {
    struct wd_rfb_state *state = &rfb->state;
    uint8_t count[4], screen[16];
    if (!get(rfb, count, 4)) {
        return false;
    }
    for (int i = 0; i < count[0]; i++) {
        if (!get(rfb, screen, sizeof screen)) {
            return false;
        }
        if (i == 0) {
            state->resizable = true;
            state->screen_id = be32(screen);
            state->screen_flags = be32(screen + 12);
        }
    }
    if (reason == 1) {
        state->resize_answers++;
        state->resize_status = status;
        if (status != 0) {
            return true; // refused: the size is the one that was asked for
        }
    }
    return resize(rfb, width, height);
}

static bool read_raw(struct wd_rfb *rfb, int x, int y, int width, int height) {
    struct wd_rfb_state *state = &rfb->state;
    if (x + width > state->width || y + height > state->height) {
        return lost(rfb, "the server sent an area outside its screen");
    }
    if (rfb->target == NULL) {
        if (!skip(rfb, (size_t)width * (size_t)height * 4)) {
            return false;
        }
    } else if (width == state->width) {
        // Whole rows are contiguous. 8,192 rows at once keep the length in 32 bits.
        size_t row = (size_t)width * 4;
        for (int done = 0; done < height;) {
            int some = height - done < 8192 ? height - done : 8192;
            if (!get(rfb, rfb->target + row * (size_t)(y + done), row * (size_t)some)) {
                return false;
            }
            done += some;
        }
    } else {
        for (int i = 0; i < height; i++) {
            size_t offset = ((size_t)(y + i) * (size_t)state->width + (size_t)x) * 4;
            if (!get(rfb, rfb->target + offset, (size_t)width * 4)) {
                return false;
            }
        }
    }
    state->pixels += (uint64_t)width * (uint64_t)height;
    return true;
}

static bool read_update(struct wd_rfb *rfb) {
    uint8_t head[12];
    if (!get(rfb, head, 3)) {
        return false;
    }
    for (int count = be16(head + 1); count > 0; count--) {
        if (!get(rfb, head, 12)) {
            return false;
        }
        int x = be16(head), y = be16(head + 2), width = be16(head + 4), height = be16(head + 6);
        int encoding = (int)be32(head + 8);
        bool good = true;
        switch (encoding) {
        case RAW:
            good = read_raw(rfb, x, y, width, height);
            break;
        case DESKTOP_SIZE:
            good = resize(rfb, width, height);
            break;
        case EXTENDED_DESKTOP_SIZE:
            good = read_desktop_size(rfb, x, y, width, height);
            break;
        case POINTER_POSITION:
            rfb->state.pointer_x = x;
            rfb->state.pointer_y = y;
            rfb->state.pointer_moves++;
            break;
        default:
            good = lost(rfb, "the server used encoding %d, which it was not offered", encoding);
        }
        if (!good) {
            return false;
        }
    }
    rfb->state.updates++;
    return true;
}

static void forget_clipboard(struct wd_rfb *rfb) {
    free(rfb->clipboard.bytes);
    rfb->clipboard.bytes = NULL;
    rfb->clipboard.count = 0;
}

static bool read_clipboard(struct wd_rfb *rfb, size_t count) {
    forget_clipboard(rfb);
    rfb->clipboard.bytes = count <= CLIPBOARD_LIMIT ? malloc(count > 0 ? count : 1) : NULL;
    bool good;
    if (rfb->clipboard.bytes == NULL) {
        good = skip(rfb, count);
    } else {
        good = get(rfb, rfb->clipboard.bytes, count);
        rfb->clipboard.count = count;
    }
    rfb->state.clipboard_texts++;
    return good;
}

bool wd_rfb_take_clipboard(struct wd_rfb *rfb, size_t limit, struct wd_bytes *text) {
    bool good = wd_clipboard_decode(rfb->clipboard.bytes, rfb->clipboard.count, limit, text);
    forget_clipboard(rfb);
    return good;
}

static bool read_cut_text(struct wd_rfb *rfb) {
    uint8_t head[11];
    if (!get(rfb, head, 7)) {
        return false;
    }
    int64_t length = (int32_t)be32(head + 3);
    size_t count = (size_t)(length < 0 ? -length : length);
    if (count > CUT_TEXT_LIMIT || (length < 0 && count < 4)) {
        return lost(rfb, "the server announced a clipboard of %zu bytes", count);
    }
    if (length >= 0) {
        return skip(rfb, count);
    }
    if (!get(rfb, head, 4)) {
        return false;
    }
    uint32_t flags = be32(head);
    count -= 4;
    // The capabilities name all actions that the server knows.
    if (!(flags & WD_CLIPBOARD_CAPS) && (flags & WD_CLIPBOARD_PROVIDE) && (flags & WD_CLIPBOARD_TEXT)) {
        return read_clipboard(rfb, count);
    }
    if (!skip(rfb, count)) {
        return false;
    }
    if (flags & WD_CLIPBOARD_CAPS) {
        rfb->state.clipboard = flags;
    } else if ((flags & WD_CLIPBOARD_REQUEST) && (flags & WD_CLIPBOARD_TEXT)) {
        rfb->state.clipboard_requests++;
    } else if (flags & WD_CLIPBOARD_NOTIFY) {
        rfb->state.clipboard_offers++;
        rfb->state.clipboard_offered = (flags & WD_CLIPBOARD_TEXT) != 0;
    }
    return true;
}

static bool read_fence(struct wd_rfb *rfb) {
    uint8_t message[9 + FENCE_PAYLOAD];
    if (!get(rfb, message + 1, 8)) {
        return false;
    }
    uint32_t flags = be32(message + 4);
    unsigned count = message[8];
    if (count > FENCE_PAYLOAD) {
        return lost(rfb, "the server sent a fence of %u bytes", count);
    }
    if (!get(rfb, message + 9, count)) {
        return false;
    }
    if (flags & FENCE_REQUEST) {
        rfb->state.has_fence = true;
        message[0] = FENCE;
        put32(message + 4, flags & FENCE_FLAGS);
        return wd_rfb_write(rfb, message, 9 + count);
    }
    if (count == 4) {
        rfb->state.fence_answers++;
        rfb->state.fence_answer = be32(message + 9);
    }
    return true;
}

bool wd_rfb_read(struct wd_rfb *rfb) {
    uint8_t type;
    if (!get(rfb, &type, 1)) {
        return false;
    }
    switch (type) {
    case UPDATE:
        return read_update(rfb);
    case CUT_TEXT:
        return read_cut_text(rfb);
    case FENCE:
        return read_fence(rfb);
    default:
        // Put the type back: the library handles bells, colour maps and the like.
        rfb->client->bufoutptr--;
        rfb->client->buffered++;
        if (wd_vnc.HandleRFBServerMessage(rfb->client)) {
            return true;
        }
        return lost(rfb, "the server sent a message of unknown type %d", type);
    }
}

int wd_wait(int first, int second, int64_t nanoseconds) {
    struct pollfd items[2] = {{first, POLLIN, 0}, {second, POLLIN, 0}};
    struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    if (ppoll(items, 2, nanoseconds < 0 ? NULL : &time, NULL) <= 0) {
        return 0;
    }
    return (items[0].revents != 0 ? 1 : 0) | (items[1].revents != 0 ? 2 : 0);
}

void wd_block_sigpipe(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}
