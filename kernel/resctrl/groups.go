// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package resctrl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/proc"
)

// EnsureGroup creates a control group unless it exists and reports whether it did. The new group has the whole cache
// and bandwidth.
func (fs FS) EnsureGroup(name string) (created bool, err error) {
	if err := ValidName(name); err != nil {
		return false, err
	}
	created, err = fs.mkdir(filepath.Join(string(fs), name))
	if err != nil {
		return false, fmt.Errorf("create resctrl group %s: %w", name, err)
	}
	return created, nil
}

// EnsureMon creates a monitoring group below a control group ("" is the root group) unless it exists.
func (fs FS) EnsureMon(group, mon string) (created bool, err error) {
	dir, err := fs.monDir(group, mon)
	if err != nil {
		return false, err
	}
	if created, err = fs.mkdir(dir); err != nil {
		return false, fmt.Errorf("create monitoring group %s of resctrl group %q: %w", mon, group, err)
	}
	return created, nil
}

// mkdir explains the two errors that are not the caller's fault: a limit of the hardware, and hardware that is not ready.
func (fs FS) mkdir(dir string) (bool, error) {
	err := os.Mkdir(dir, 0o755)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EEXIST):
		return false, nil
	case errors.Is(err, unix.ENOSPC):
		err = fmt.Errorf("%w: no class of service (CLOSID) or monitoring id (RMID) of the hardware is left", err)
	case errors.Is(err, unix.EBUSY):
		err = fmt.Errorf("%w: freed monitoring ids still hold cache lines, try later", err)
	}
	return false, fs.explain(err)
}

// RemoveGroup removes a control group with its monitoring groups; its tasks fall back to the root group. One that does
// not exist is no error.
func (fs FS) RemoveGroup(name string) error {
	if err := ValidName(name); err != nil {
		return err
	}
	return fs.rmdir(filepath.Join(string(fs), name))
}

// RemoveMon removes a monitoring group; its tasks stay in the control group.
func (fs FS) RemoveMon(group, mon string) error {
	dir, err := fs.monDir(group, mon)
	if err != nil {
		return err
	}
	return fs.rmdir(dir)
}

// rmdir never removes files: in resctrl a group's directory goes with what is in it.
func (fs FS) rmdir(dir string) error {
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return fs.explain(fmt.Errorf("remove resctrl group %s: %w", dir, err))
	}
	return nil
}

// Tasks lists the threads of a control group ("" is the root group).
func (fs FS) Tasks(group string) ([]int, error) {
	dir, err := fs.dir(group)
	if err != nil {
		return nil, err
	}
	return proc.ReadPIDs(filepath.Join(dir, "tasks"))
}

// MonTasks lists the threads of a monitoring group.
func (fs FS) MonTasks(group, mon string) ([]int, error) {
	dir, err := fs.monDir(group, mon)
	if err != nil {
		return nil, err
	}
	return proc.ReadPIDs(filepath.Join(dir, "tasks"))
}

// InGroup reports whether a thread is in a control group ("" is the root group).
func (fs FS) InGroup(group string, tid int) (bool, error) {
	tids, err := fs.Tasks(group)
	return slices.Contains(tids, tid), err
}

// MoveTasks moves threads into a control group ("" is the root group), one id per write: before Linux 6.7 a write takes
// one, and a list stops at the first that is gone. Threads that are gone are skipped. Moving does not evict the cache
// lines that a task already holds. Children inherit the group at fork.
func (fs FS) MoveTasks(group string, tids ...int) error {
	dir, err := fs.dir(group)
	if err != nil {
		return err
	}
	return fs.addTasks(dir, tids)
}

// AddMon puts threads into a monitoring group. The kernel accepts only threads of the same control group (EINVAL).
func (fs FS) AddMon(group, mon string, tids ...int) error {
	dir, err := fs.monDir(group, mon)
	if err != nil {
		return err
	}
	return fs.addTasks(dir, tids)
}

func (fs FS) addTasks(dir string, tids []int) error {
	var errs []error
	for _, tid := range tids {
		if tid <= 0 {
			// 0 would move ourselves.
			errs = append(errs, fmt.Errorf("move task to %s: %d is no thread id", dir, tid))
			continue
		}
		err := appendTask(filepath.Join(dir, "tasks"), tid)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fs.explain(err))
		}
	}
	return errors.Join(errs...)
}
