// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// prctlCookies is the running kernel: prctl(PR_SCHED_CORE, command, pid, scope, address), include/uapi/linux/prctl.h.
type prctlCookies struct{}

func (prctlCookies) cookie(pid int) (uint64, error) {
	var cookie uint64
	err := schedCore(unix.PR_SCHED_CORE_GET, pid, unix.PR_SCHED_CORE_SCOPE_THREAD, unsafe.Pointer(&cookie))
	return cookie, err
}

func (prctlCookies) create(pid int) error {
	return schedCore(unix.PR_SCHED_CORE_CREATE, pid, unix.PR_SCHED_CORE_SCOPE_THREAD_GROUP, nil)
}

// share goes through a thread of ours: SHARE_FROM copies the leader's cookie to the calling thread, SHARE_TO the calling
// thread's to the target.
func (prctlCookies) share(from, to int) error {
	return onDoomedThread(func() error {
		if err := schedCore(unix.PR_SCHED_CORE_SHARE_FROM, from, unix.PR_SCHED_CORE_SCOPE_THREAD, nil); err != nil {
			return err
		}
		return schedCore(unix.PR_SCHED_CORE_SHARE_TO, to, unix.PR_SCHED_CORE_SCOPE_THREAD_GROUP, nil)
	})
}

// clear shares the cookie of a thread of ours, which has none. Should somebody have given our whole process one, the
// target gets a cookie that no container has: still not its group's.
func (prctlCookies) clear(pid int) error {
	return onDoomedThread(func() error {
		return schedCore(unix.PR_SCHED_CORE_SHARE_TO, pid, unix.PR_SCHED_CORE_SCOPE_THREAD_GROUP, nil)
	})
}

// onDoomedThread runs f on an operating-system thread that ends with it: the goroutine stays locked, so the runtime
// kills the thread instead of running other goroutines, or starting threads, under a container's cookie.
func onDoomedThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// schedCore is one prctl call. kernel/sched/core_sched.c, sched_core_share_pid: without CONFIG_SCHED_CORE prctl knows no
// such option (EINVAL), without SMT it is ENODEV.
func schedCore(cmd, pid, scope int, addr unsafe.Pointer) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SCHED_CORE, uintptr(cmd), uintptr(pid), uintptr(scope), uintptr(addr), 0)
	switch {
	case errno == 0:
		return nil
	case errno == unix.ENODEV:
		return &UnsupportedError{"core scheduling", "SMT is off or absent, no two threads share a core"}
	case errno == unix.EINVAL:
		return &UnsupportedError{"core scheduling", "no PR_SCHED_CORE: it appeared in Linux 5.14 and needs CONFIG_SCHED_CORE"}
	case errors.Is(errno, unix.EPERM):
		return fmt.Errorf("prctl PR_SCHED_CORE on %d: %w (needs CAP_SYS_PTRACE over it)", pid, errno)
	default:
		return fmt.Errorf("prctl PR_SCHED_CORE on %d: %w", pid, errno)
	}
}
