// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kerneltest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A Proof asks the kernel whether this machine lacks something. It returns the kernel's own statement that it does, or an
// error that says what stands against it.
type Proof func() (statement string, err error)

// StepAside ends a test that cannot run here: skipped where the proof holds, failed where not. On CI (variable CI) it
// always fails, because that machine is ours to set up. A test is skipped in no other way (TestNoSilentSkip of test/arch).
func StepAside(t testing.TB, proof Proof) {
	t.Helper()
	statement := proven(t, proof)
	if os.Getenv("CI") != "" {
		t.Fatalf("this test has to run on CI, and cannot: %s", statement)
	}
	t.Skip(statement)
}

// LeaveToVM is StepAside for a test that runs in the VM lane too, where nothing may step aside (TestGuestKernelPackages of
// test/e2e): the proof is enough, on CI too.
func LeaveToVM(t testing.TB, proof Proof) {
	t.Helper()
	t.Skip(proven(t, proof))
}

func proven(t testing.TB, proof Proof) string {
	t.Helper()
	statement, err := proof()
	if err != nil {
		t.Fatalf("this test cannot run here, and the kernel does not say why: %v", err)
	}
	return statement
}

// Permitted ends the test at an error. StepAside takes it where it is a refusal of rights as in Denied.
func Permitted(t testing.TB, err error, capabilities ...int) {
	t.Helper()
	if err != nil {
		StepAside(t, Denied(err, capabilities...))
	}
}

// AnyOf holds where one of the proofs does.
func AnyOf(proofs ...Proof) Proof {
	return func() (string, error) {
		against := []error{errors.New("no proof holds")}
		for _, p := range proofs {
			statement, err := p()
			if err == nil {
				return statement, nil
			}
			against = append(against, err)
		}
		return "", errors.Join(against...)
	}
}

// Said holds where err is the errno by which the kernel names the lack.
func Said(err error, errno unix.Errno) Proof {
	return func() (string, error) {
		if !errors.Is(err, errno) {
			return "", fmt.Errorf("%v is not %s", err, unix.ErrnoName(errno))
		}
		return err.Error(), nil
	}
}

// Denied holds where err is a refusal of rights (EPERM, EACCES) and /proc/self/status shows that none of the capabilities that
// would do is in force (capabilities(7)), or /proc/self/uid_map that they are those of a user namespace; and where err is
// EROFS. Root with the capability is refused for another reason, which proves nothing.
func Denied(err error, capabilities ...int) Proof {
	return func() (string, error) {
		status, serr := os.ReadFile("/proc/self/status")
		ids, ierr := os.ReadFile("/proc/self/uid_map")
		if rerr := errors.Join(serr, ierr); rerr != nil {
			return "", rerr
		}
		return denied(err, string(status), string(ids), capabilities)
	}
}

// allIDs are the three fields of uid_map in the first user namespace: every id is itself (user_namespaces(7)).
var allIDs = [...]string{"0", "0", "4294967295"}

func denied(err error, status, ids string, capabilities []int) (string, error) {
	if errors.Is(err, unix.EROFS) {
		return err.Error(), nil
	}
	if !errors.Is(err, os.ErrPermission) {
		return "", fmt.Errorf("not a refusal of rights: %w", err)
	}
	_, rest, _ := strings.Cut(status, "\nCapEff:")
	text, _, _ := strings.Cut(rest, "\n")
	effective, perr := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
	if perr != nil {
		return "", fmt.Errorf("no CapEff in /proc/self/status: %w", perr)
	}
	if has := func(c int) bool { return effective>>c&1 == 1 }; len(capabilities) > 0 && !slices.ContainsFunc(capabilities, has) {
		return fmt.Sprintf("%v: CapEff %x has none of the capabilities %v", err, effective, capabilities), nil
	}
	if fields := strings.Fields(ids); !slices.Equal(fields, allIDs[:]) {
		return fmt.Sprintf("%v: in a user namespace, uid_map %q", err, fields), nil
	}
	return "", fmt.Errorf("CapEff %x should do: %w", effective, err)
}
