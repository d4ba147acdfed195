// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// samplePrefix and our pid name the probe cgroup.
const samplePrefix = "koord-rt-probe-"

// controllers are those that carry a knob on v2.
var controllers = [...]string{"cpu", "cpuset", "memory", "io"}

// sample is a cgroup to look at: our own short-lived one, or an existing one that is only read, where none of our own can
// be made (read-only mount, no rights, a tree that is no kernel).
type sample struct {
	fs     cgroup.FS
	target plan.Target
	// ours may be written to.
	ours bool
	made []string
	// enabled are the controllers to switch off again at rootDir.
	enabled []string
	rootDir string
}

// newSample makes the probe cgroup, in each hierarchy on v1. It is to be closed in any case.
func newSample(fs cgroup.FS, roots root.Roots, kubepodsRoot string) (*sample, error) {
	s := &sample{fs: fs, rootDir: roots.Cgroup, target: plan.Target{
		Level: plan.LevelContainer, Cgroup: "/" + samplePrefix + strconv.Itoa(os.Getpid()), Name: "probe",
	}}
	err := s.make(roots.Proc)
	if err == nil {
		s.ours = true
		return s, nil
	}
	cerr := s.close()
	slice, plain := cgrouppath.Kubepods(kubepodsRoot)
	for _, top := range []string{slice, plain} {
		if exists(fs, top) {
			s.target.Cgroup = top
			return s, cerr
		}
	}
	return nil, errors.Join(fmt.Errorf("make a probe cgroup: %w: %w", ErrInconclusive, err), cerr)
}

func (s *sample) make(proc string) error {
	for _, dir := range s.dirs() {
		sweep(filepath.Dir(dir), proc)
		// What a killed predecessor with our pid left is as good as new.
		if err := unix.Mkdir(dir, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("create %s: %w", dir, err)
		}
		s.made = append(s.made, dir)
		if _, err := os.Stat(dir + "/cgroup.procs"); err != nil {
			return fmt.Errorf("%s is no cgroup filesystem: %w", filepath.Dir(dir), err)
		}
	}
	if len(s.made) == 0 {
		return errors.New("no controller is mounted")
	}
	if s.fs.Version() == node.CgroupV2 {
		return s.enable()
	}
	return nil
}

// dirs are the sample's directories, one on v2 and one per mounted controller of ours on v1.
func (s *sample) dirs() []string {
	var out []string
	for k := plan.KnobNone + 1; k < plan.NumKnobs; k++ {
		if dir, err := s.fs.Dir(s.target, k); err == nil && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// enable switches the missing controllers on for the root's children. Nobody uses one that is off there, so it can be
// switched off again; who starts to use one meanwhile makes that fail with EBUSY, which is well.
func (s *sample) enable() error {
	have, err := root.Read(s.rootDir + "/cgroup.controllers")
	if err != nil {
		return err
	}
	on, err := root.Read(s.rootDir + "/cgroup.subtree_control")
	if err != nil {
		return err
	}
	for _, c := range controllers {
		if !slices.Contains(strings.Fields(have), c) || slices.Contains(strings.Fields(on), c) {
			continue
		}
		// EBUSY when this root is itself an inner cgroup with processes; the knob is then reported as inconclusive.
		if err := root.Write(s.rootDir+"/cgroup.subtree_control", "+"+c); err == nil {
			s.enabled = append(s.enabled, c)
		}
	}
	return nil
}

// close removes what was made.
func (s *sample) close() error {
	var errs []error
	for _, dir := range s.made {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove %s: %w", dir, err))
		}
	}
	for _, c := range s.enabled {
		err := root.Write(s.rootDir+"/cgroup.subtree_control", "-"+c)
		if err != nil && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, err)
		}
	}
	s.made, s.enabled = nil, nil
	return errors.Join(errs...)
}

// sweep removes the probe cgroups of predecessors that were killed.
func sweep(parent, proc string) {
	left, err := filepath.Glob(parent + "/" + samplePrefix + "*")
	if err != nil {
		return
	}
	for _, dir := range left {
		pid := strings.TrimPrefix(filepath.Base(dir), samplePrefix)
		if _, err := strconv.ParseUint(pid, 10, 31); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(proc, pid)); errors.Is(err, os.ErrNotExist) {
			unix.Rmdir(dir) //nolint:errcheck // the next start tries again
		}
	}
}
