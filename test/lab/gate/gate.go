// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package gate stands between a program and the files it writes: a kernel that takes its time, as it does where it has to
// reclaim memory first or another writer holds its lock.
//
// Input: a command that is not started yet, and directories. Output: the started command, whose writes into files below the
// directories, or to a socket that it has connected to, wait while the gate is shut; everything else it does goes on. It is a seccomp
// filter that asks about each write(2) and pwrite64(2), so the program under test is the one that is shipped, and no debugger stops it.
// It must not import any package under test.
package gate

import (
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/child"
)

// Gate lets the writes of one process, and of those that it starts, pass or wait. Safe for concurrent use.
type Gate struct {
	dirs []string

	mu       sync.Mutex
	listener int      // -1 when all have ended
	pid      int      // of the command
	files    bool     // writes below dirs wait
	socket   string   // writes to connections with it wait, "" for none
	waiting  []uint64 // notifications without an answer
	sent     int      // those of them that are writes to the socket
}

// Start starts a command whose writes below dirs pass the gate, which is open. exited is closed when the command has ended and
// was waited for.
func Start(cmd *exec.Cmd, dirs ...string) (g *Gate, exited <-chan struct{}, err error) {
	g = &Gate{dirs: dirs, listener: -1}
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The filter is this thread's, and what it forks has it too. The thread is never given back: it ends with the command.
		runtime.LockOSThread()
		child.Tie(cmd, syscall.SIGKILL)
		fd, err := install()
		if err == nil {
			g.listener = fd
			go g.serve(fd) // on another thread; the start's own writes ask as well
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // its exit state is read where it matters
		}
		close(done)
	}()
	if err := <-started; err != nil {
		return nil, nil, fmt.Errorf("start %s behind a gate: %w", cmd.Path, err)
	}
	g.mu.Lock()
	g.pid = cmd.Process.Pid
	g.mu.Unlock()
	return g, done, nil
}

// Shut makes writes below the directories wait from now on.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.files = true
}

// ShutSocket makes what the command, but none of its children, writes to the unix socket at path wait from now on: an answer is
// decided, and nobody hears it.
func (g *Gate) ShutSocket(path string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.socket = path
}

// Open lets those that wait pass, and all that follow.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.files, g.socket = false, ""
	for _, id := range g.waiting {
		g.pass(id)
	}
	g.waiting, g.sent = nil, 0
}

// Waiting is how many writes wait, of either kind.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// Sent is how many of those that wait are writes to the socket.
func (g *Gate) Sent() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sent
}

// notification is struct seccomp_notif, answer struct seccomp_notif_resp (linux/seccomp.h).
type notification struct {
	id    uint64
	tid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type answer struct {
	id    uint64
	val   int64
	error int32
	flags uint32
}

// flagContinue is SECCOMP_USER_NOTIF_FLAG_CONTINUE (5.5): the kernel goes on with the call.
const flagContinue = 1

// install puts the filter over the calling thread. The listener needs no privilege with no_new_privs. A call that has
// been asked about is not interrupted by signals (WAIT_KILLABLE_RECV, 5.19): Go sends itself many.
func install() (listener int, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("set no_new_privs: %w", err)
	}
	const ask, allow = 0x7fc00000, 0x7fff0000 // SECCOMP_RET_USER_NOTIF, SECCOMP_RET_ALLOW
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_WRITE, Jt: 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PWRITE64, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: allow},
		{Code: unix.BPF_RET | unix.BPF_K, K: ask},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return -1, fmt.Errorf("install a seccomp filter with a listener: %w", errno)
	}
	return int(fd), nil
}

// serve answers until nobody has the filter any more.
func (g *Gate) serve(listener int) {
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.listener, g.waiting, g.sent = -1, nil, 0
		_ = unix.Close(listener)
	}()
	for {
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return
		}
		switch at := fds[0].Revents; {
		case at&unix.POLLIN != 0:
		case at&(unix.POLLHUP|unix.POLLNVAL) != 0: // all have ended
			return
		default: // POLLERR is a signal while the kernel waited for its lock (seccomp_notify_poll)
			continue
		}
		var n notification // the kernel demands zeroes
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno != 0 {
			continue // the caller was killed in between, or a signal came: then it still waits
		}
		g.judge(&n)
	}
}

func (g *Gate) judge(n *notification) {
	below, socket := g.target(n.tid, int(n.args[0]))
	g.mu.Lock()
	defer g.mu.Unlock()
	sent := socket && g.socket != "" && peer(g.pid, int(n.args[0])) == g.socket
	if g.files && below || sent {
		g.waiting = append(g.waiting, n.id)
		if sent {
			g.sent++
		}
		return
	}
	g.pass(n.id)
}

// pass lets one call go on; g.mu is held. An error but that of a signal is that the caller has been killed.
func (g *Gate) pass(id uint64) {
	a := answer{id: id, flags: flagContinue}
	for errno := unix.EINTR; errno == unix.EINTR; {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(g.listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
	}
}

// target says what a thread's descriptor is: a file in one of the directories, a socket, or neither.
func (g *Gate) target(tid uint32, fd int) (below, socket bool) {
	path := make([]byte, unix.PathMax)
	n, err := unix.Readlink("/proc/"+strconv.Itoa(int(tid))+"/fd/"+strconv.Itoa(fd), path)
	if err != nil {
		return false, false
	}
	for _, d := range g.dirs {
		if strings.HasPrefix(string(path[:n]), d+"/") {
			return true, false
		}
	}
	return false, strings.HasPrefix(string(path[:n]), "socket:[")
}

// peer is the path of the unix socket that a process's descriptor is connected to, "" for any other descriptor.
func peer(pid, fd int) string {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(process)
	ours, err := unix.PidfdGetfd(process, fd, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(ours)
	name, err := unix.Getpeername(ours)
	if to, ok := name.(*unix.SockaddrUnix); ok && err == nil {
		return to.Name
	}
	return ""
}
