// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kerneltest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ended is a test's end as StepAside and its like see it.
type ended struct {
	testing.TB
	how string
}

func (e *ended) Helper() {}

func (e *ended) Fatalf(format string, args ...any) { e.stop("failed", fmt.Sprintf(format, args...)) }

func (e *ended) Skip(args ...any) { e.stop("skipped", fmt.Sprint(args...)) }

func (e *ended) stop(how, why string) {
	e.how = how + ": " + why
	runtime.Goexit()
}

// end runs a test in a goroutine of its own, which it may end.
func end(test func(testing.TB)) string {
	e := &ended{how: "went on"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(e)
	}()
	<-done
	return e.how
}

// Not parallel: it sets the environment.
func TestStepAside(t *testing.T) {
	holds := Proof(func() (string, error) { return "the kernel has none", nil })
	fails := Proof(func() (string, error) { return "", errors.New("it has one") })
	for _, ci := range []string{"", "true"} {
		t.Setenv("CI", ci)
		rights := "skipped: "
		if ci != "" {
			rights = "failed: "
		}
		for name, c := range map[string]struct {
			test      func(testing.TB)
			how, text string
		}{
			"proven":                     {func(t testing.TB) { StepAside(t, holds) }, rights, "the kernel has none"},
			"unproven":                   {func(t testing.TB) { StepAside(t, fails) }, "failed: ", "it has one"},
			"proven, runs in the VM":     {func(t testing.TB) { LeaveToVM(t, holds) }, "skipped: ", "the kernel has none"},
			"unproven, runs in the VM":   {func(t testing.TB) { LeaveToVM(t, fails) }, "failed: ", "it has one"},
			"no error":                   {func(t testing.TB) { Permitted(t, nil, unix.CAP_SYS_ADMIN) }, "went on", ""},
			"no right":                   {func(t testing.TB) { Permitted(t, unix.EPERM, 63) }, rights, unix.EPERM.Error()},
			"an error that is no denial": {func(t testing.TB) { Permitted(t, unix.EIO, 63) }, "failed: ", unix.EIO.Error()},
		} {
			if how := end(c.test); !strings.HasPrefix(how, c.how) || !strings.Contains(how, c.text) {
				t.Errorf("CI=%q, %s: %s", ci, name, how)
			}
		}
	}
}

// TestProofs: each holds where it should and, more important, not elsewhere. The machine is any Linux.
func TestProofs(t *testing.T) {
	t.Parallel()
	yes := Proof(func() (string, error) { return "yes", nil })
	no := NotMounted("proc")
	here := t.TempDir()
	if err := os.WriteFile(here+"/cgroup.controllers", []byte("cpu memory\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wrapped := fmt.Errorf("read: %w", unix.EOPNOTSUPP)
	for name, c := range map[string]struct {
		proof Proof
		holds bool
	}{
		"a type that no kernel knows":      {NotMounted("koord-rt-none"), true},
		"procfs is mounted":                {no, false},
		"one of two is mounted":            {NotMounted("koord-rt-none", "proc"), false},
		"procfs at /proc":                  {OfType("/proc", unix.PROC_SUPER_MAGIC), true},
		"sysfs at /proc":                   {OfType("/proc", unix.SYSFS_MAGIC), false},
		"nothing there to be a filesystem": {OfType(here+"/none", unix.PROC_SUPER_MAGIC), false},
		"no sysfs at /proc":                {NotOfType("/proc", unix.SYSFS_MAGIC), true},
		"no procfs at /proc":               {NotOfType("/proc", unix.PROC_SUPER_MAGIC), false},
		"no such file in procfs":           {NoFile("/proc/koord-rt/none", unix.PROC_SUPER_MAGIC), true},
		"a file of procfs":                 {NoFile("/proc/self/status", unix.PROC_SUPER_MAGIC), false},
		"no such file, but not in procfs":  {NoFile(here+"/none", unix.PROC_SUPER_MAGIC), false},
		"a controller that is not there":   {NoController(here, "io"), true},
		"a controller that is there":       {NoController(here, "memory"), false},
		"no cgroup":                        {NoController(here+"/none", "memory"), false},
		"the errno":                        {Said(wrapped, unix.EOPNOTSUPP), true},
		"another errno":                    {Said(wrapped, unix.ENOENT), false},
		"no error":                         {Said(nil, unix.ENOENT), false},
		"a capability that no process has": {Denied(unix.EACCES, 63), true},
		"neither of two":                   {AnyOf(no, Said(nil, unix.EPERM)), false},
		"the second of two":                {AnyOf(no, yes), true},
		"none of none":                     {AnyOf(), false},
	} {
		statement, err := c.proof()
		if (err == nil) != c.holds || (statement != "") != c.holds {
			t.Errorf("%s: %q, %v", name, statement, err)
		}
	}
}

func TestDenied(t *testing.T) {
	t.Parallel()
	const (
		root   = "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n"
		nobody = "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\n"
		some   = "Name:\tx\nCapEff:\t0000000008000000\n" // 1<<27, CAP_MKNOD
		first  = "         0          0 4294967295\n"
		below  = "         0       1000          1\n"
	)
	for name, c := range map[string]struct {
		err         error
		status, ids string
		needs       []int
		proven      bool
	}{
		"no capability":                   {unix.EPERM, nobody, first, []int{unix.CAP_MKNOD}, true},
		"root":                            {unix.EPERM, root, first, []int{unix.CAP_MKNOD}, false},
		"wrapped":                         {&os.PathError{Op: "mkdir", Err: unix.EACCES}, nobody, first, []int{unix.CAP_DAC_OVERRIDE}, true},
		"one of two would do, and is had": {unix.EPERM, some, first, []int{unix.CAP_MKNOD, unix.CAP_SYS_ADMIN}, false},
		"another one is had":              {unix.EPERM, some, first, []int{unix.CAP_SYS_ADMIN}, true},
		"root of a user namespace":        {unix.EPERM, root, below, []int{unix.CAP_MKNOD}, true},
		"nothing named":                   {unix.EPERM, nobody, first, nil, false},
		"another error":                   {unix.ENOENT, nobody, below, []int{unix.CAP_MKNOD}, false},
		"no error":                        {nil, nobody, below, []int{unix.CAP_MKNOD}, false},
		"read only":                       {unix.EROFS, root, first, nil, true},
		"a status without the line":       {unix.EPERM, "Name:\tx\n", below, []int{unix.CAP_MKNOD}, false},
	} {
		if statement, err := denied(c.err, c.status, c.ids, c.needs); (err == nil) != c.proven || (statement != "") != c.proven {
			t.Errorf("%s: %q, %v", name, statement, err)
		}
	}
}

func TestUnbuilt(t *testing.T) {
	t.Parallel()
	const text = "#\n# Automatically generated\n#\nCONFIG_NUMA=y\nCONFIG_PSI_DEFAULT_DISABLED=y\nCONFIG_EXT4_FS=m\n# CONFIG_SCHED_CORE is not set\n"
	for option, want := range map[string]struct {
		line  string
		holds bool
	}{
		"CONFIG_NUMA": {"CONFIG_NUMA=y", false}, "CONFIG_EXT4_FS": {"CONFIG_EXT4_FS=m", false},
		"CONFIG_SCHED_CORE": {"# CONFIG_SCHED_CORE is not set", true}, "CONFIG_PSI": {"", true},
	} {
		if line := ConfigLine(text, option); line != want.line {
			t.Errorf("%s: %q", option, line)
		}
		if statement, err := unbuilt(text, option); (err == nil) != want.holds || (statement != "") != want.holds {
			t.Errorf("%s: %q, %v", option, statement, err)
		}
	}
	if statement, err := unbuilt("", "CONFIG_PSI"); err == nil {
		t.Errorf("an empty configuration: %q", statement)
	}
}
