// The floor of the relay benchmark: what relaying costs when nothing but relaying is done.
//
//   bare [-l BYTES] LISTEN-IP PORT TO-IP PORT
//
// Two threads, each with a SO_REUSEPORT listener and an edge-triggered epoll of its own; splice in, splice out, up to four
// pieces a turn. A direction keeps its pipe while there is something in it; pipes are of 1 MiB, or of an even share of what
// the kernel gives a user if there are more. -l sets SO_RCVLOWAT on a source once 1 MiB has
// come from it, and back to 1 when nothing has come for 2 ms: the tail of a burst would not wake the relay.
//
// It passes bytes and half-closes on and waits for both sides. It is no relay to use: a reset on one side becomes a clean
// end on the other, urgent data cuts a stream short, and there are no limits, timeouts or logs. It gives up its capabilities
// as ekiden does, so that both have the pipe pages of an ordinary user (fs.pipe-user-pages-soft).
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 2, PIECES = 4, BATCH = 256, PAGE = 4096, PIPE = 1 << 20, SMALLEST = 2 * PAGE, RETRY = 64, BULK = 1 << 20, QUIET_MS = 2 };

struct tube {
  int pipe[2], size, wait; // uses before a larger size is asked for again
  struct tube *next;
};
// From one socket to the other.
struct way {
  struct tube *tube; // while there is something in it
  int from, to, held, readable, writable, end, done, mark, moved;
  long long came;
};
// A socket's name among epoll's events.
struct side {
  struct link *link;
  struct way *out, *in; // what leaves this socket for the relay, and what the relay writes to it
};
struct link {
  struct side side[2];
  struct way way[2];
  int queued, dead;
  struct link *next, *prev; // of those with a low-water mark
};
struct worker {
  int epoll, listener, count, size;
  struct tube *spare;
  struct link **turn; // with work left, to go on with after the next look at events
  struct link marked; // the head of a ring
  long long swept;
};

static struct sockaddr_in listen_at, to;
static int lowat;
static long pages; // that one user's pipes may have; 0: no limit
static atomic_int pipes;

static long long now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void set(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

static void mark(struct way *w, int bytes) {
  set(w->from, SOL_SOCKET, SO_RCVLOWAT, bytes);
  w->mark = bytes > 1;
}

// What each pipe may have if all are to have the same. A pipe that is made when the user's pages are used up has two.
static int share(void) {
  int size = PIPE, count = pipes;
  while (pages && size > SMALLEST && (long)size / PAGE * count > pages) size /= 2;
  return size;
}

// An empty one with its share, or as much as is left.
static struct tube *take(struct worker *worker) {
  struct tube *t = worker->spare;
  if (t) {
    worker->spare = t->next;
  } else {
    if (!(t = calloc(1, sizeof *t)) || pipe2(t->pipe, O_NONBLOCK | O_CLOEXEC) < 0) return free(t), NULL;
    pipes++;
  }
  int size = share();
  if (size == t->size || (size > t->size && t->wait-- > 0)) return t;
  // Pipes that still have more than their share, or other processes of this user, may leave less.
  while (size > SMALLEST && fcntl(t->pipe[1], F_SETPIPE_SZ, size) < 0) size /= 2;
  t->size = size, t->wait = RETRY;
  return t;
}

static void give_back(struct worker *worker, struct way *w) {
  if (!w->tube || w->held) return;
  w->tube->next = worker->spare, worker->spare = w->tube, w->tube = NULL;
}

// Moves up to PIECES pieces: 1 if there may be more, 0 if a socket has to become ready first, -1 if the connection broke.
static int move(struct worker *worker, struct way *w) {
  for (int piece = 0; piece < PIECES; piece++) {
    if (!w->held && !w->end && w->readable) {
      if (!w->tube && !(w->tube = take(worker))) return -1;
      ssize_t n = splice(w->from, 0, w->tube->pipe[1], 0, PIPE, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
      if (n > 0) w->held = n, w->came += n, w->moved = 1;
      else if (n == 0) w->end = 1;
      else if (errno == EAGAIN) w->readable = 0; // the pipe is empty, so it is the socket that has nothing
      else return -1;
      if (lowat && !w->mark && w->came >= BULK) mark(w, lowat);
    }
    while (w->held && w->writable) {
      ssize_t n = splice(w->tube->pipe[0], 0, w->to, 0, w->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
      if (n > 0) w->held -= n;
      else if (n < 0 && errno == EAGAIN) w->writable = 0;
      else return -1;
    }
    if (w->held) return 0;
    if (w->end) {
      if (!w->done) shutdown(w->to, SHUT_WR);
      w->done = 1;
      return 0;
    }
    if (!w->readable) return 0;
  }
  return 1;
}

static void unlink_marked(struct link *l) {
  if (l->next) l->next->prev = l->prev, l->prev->next = l->next;
  l->next = l->prev = NULL;
}

static void serve(struct worker *worker, struct link *l) {
  int more = 0;
  for (int i = 0; i < 2 && !l->dead; i++) {
    int result = move(worker, &l->way[i]);
    give_back(worker, &l->way[i]);
    if (result < 0) l->dead = 1;
    more |= result > 0;
  }
  l->dead |= l->way[0].done && l->way[1].done;
  if ((l->way[0].mark || l->way[1].mark) && !l->next) {
    l->next = &worker->marked, l->prev = worker->marked.prev;
    l->prev->next = l, worker->marked.prev = l;
  }
  // The dead are freed where those with work left are served: no event of this batch names them any more then.
  if ((more || l->dead) && !l->queued) {
    if (worker->count == worker->size) {
      worker->size = worker->size ? 2 * worker->size : 64;
      worker->turn = realloc(worker->turn, worker->size * sizeof *worker->turn);
      if (!worker->turn) die("memory");
    }
    worker->turn[worker->count++] = l, l->queued = 1;
  }
}

static void finish(struct link *l) {
  unlink_marked(l);
  for (int i = 0; i < 2; i++) {
    close(l->way[i].from);
    struct tube *t = l->way[i].tube;
    if (t) close(t->pipe[0]), close(t->pipe[1]), free(t), pipes--;
  }
  free(l);
}

static void welcome(struct worker *worker) {
  int client;
  while ((client = accept4(worker->listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
    int server = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct link *l = calloc(1, sizeof *l);
    set(client, IPPROTO_TCP, TCP_NODELAY, 1);
    set(server, IPPROTO_TCP, TCP_NODELAY, 1);
    if (!l || server < 0 || (connect(server, (void *)&to, sizeof to) < 0 && errno != EINPROGRESS)) {
      close(client), close(server), free(l);
      continue;
    }
    l->way[0] = (struct way){ .from = client, .to = server };
    l->way[1] = (struct way){ .from = server, .to = client };
    for (int i = 0; i < 2; i++) {
      l->side[i] = (struct side){ l, &l->way[i], &l->way[!i] };
      struct epoll_event e = { EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, { .ptr = &l->side[i] } };
      if (epoll_ctl(worker->epoll, EPOLL_CTL_ADD, l->way[i].from, &e) < 0) die("epoll_ctl");
    }
  }
}

// Sources with a mark from which nothing came since the last look: their tail may lie below it.
static void sweep(struct worker *worker) {
  long long now = now_ms();
  if (now < worker->swept + QUIET_MS) return;
  worker->swept = now;
  for (struct link *l = worker->marked.next, *next; l != &worker->marked; l = next) {
    next = l->next;
    int left = 0;
    for (int i = 0; i < 2; i++) {
      struct way *w = &l->way[i];
      if (w->mark && !w->moved && !w->held && !w->end) mark(w, 1), w->came = 0, w->readable = 1;
      w->moved = 0, left |= w->mark;
    }
    if (!left) unlink_marked(l);
    serve(worker, l);
  }
}

static void *work(void *unused) {
  (void)unused;
  struct worker worker = { .epoll = epoll_create1(EPOLL_CLOEXEC) };
  worker.marked.next = worker.marked.prev = &worker.marked;
  worker.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  set(worker.listener, SOL_SOCKET, SO_REUSEADDR, 1);
  set(worker.listener, SOL_SOCKET, SO_REUSEPORT, 1);
  if (bind(worker.listener, (void *)&listen_at, sizeof listen_at) < 0 || listen(worker.listener, 4096) < 0) die("listen");
  struct epoll_event e = { EPOLLIN, { .ptr = NULL } }, events[BATCH];
  if (epoll_ctl(worker.epoll, EPOLL_CTL_ADD, worker.listener, &e) < 0) die("epoll_ctl");
  for (;;) {
    int any_marked = worker.marked.next != &worker.marked;
    int n = epoll_wait(worker.epoll, events, BATCH, worker.count ? 0 : any_marked ? QUIET_MS : -1);
    for (int i = 0; i < n; i++) {
      struct side *side = events[i].data.ptr;
      if (!side) {
        welcome(&worker);
        continue;
      }
      side->out->readable |= !!(events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP));
      side->in->writable |= !!(events[i].events & (EPOLLOUT | EPOLLERR | EPOLLHUP));
      if (!side->link->queued) serve(&worker, side->link);
    }
    int count = worker.count;
    worker.count = 0;
    for (int i = 0; i < count; i++) {
      struct link *l = worker.turn[i];
      l->queued = 0;
      // Those who have work left again take places that have been looked at: at most as many as before.
      if (l->dead) finish(l);
      else serve(&worker, l);
    }
    if (any_marked) sweep(&worker);
  }
  return NULL;
}

static struct sockaddr_in address(const char *ip, const char *port) {
  struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
  if (inet_pton(AF_INET, ip, &a.sin_addr) != 1) fprintf(stderr, "not an IPv4 address: %s\n", ip), exit(2);
  return a;
}

int main(int count, char **args) {
  if (count == 7 && !strcmp(args[1], "-l")) lowat = atoi(args[2]), args += 2, count -= 2;
  if (count != 5) fprintf(stderr, "usage: bare [-l BYTES] LISTEN-IP PORT TO-IP PORT\n"), exit(2);
  listen_at = address(args[1], args[2]), to = address(args[3], args[4]);
  signal(SIGPIPE, SIG_IGN);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files), files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
  struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
  struct __user_cap_data_struct none[2] = { 0 };
  if (syscall(SYS_capset, &header, none) < 0) die("capset");
  FILE *soft = fopen("/proc/sys/fs/pipe-user-pages-soft", "r");
  if (!soft || fscanf(soft, "%ld", &pages) != 1) die("/proc/sys/fs/pipe-user-pages-soft");
  fclose(soft);
  pthread_t thread;
  for (int i = 1; i < THREADS; i++)
    if (pthread_create(&thread, NULL, work, NULL)) die("thread");
  work(NULL);
}
