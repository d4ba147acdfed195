// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package cgrouppath turns the cgroup names of CRI and OCI into directories below the cgroup root, and back into pods.
//
// Two drivers exist. With cgroupfs a name is the directory: "/kubepods/burstable/podUID/ID". With systemd it is a unit
// that has to be expanded: "kubepods-burstable-podUID.slice:cri-containerd:ID" is the scope cri-containerd-ID.scope below
// three nested slices. Both may stand below a prefix (kubelet's --cgroup-root). Everything here is pure; names come from
// outside and are refused when they would leave the cgroup root. It imports api/protocol and the standard library only.
package cgrouppath

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// ErrPath is wrapped by every error of this package.
var ErrPath = errors.New("not a cgroup path")

const maxLen = 4096

// Container expands an OCI linux.cgroupsPath.
//
//	"/kubepods/burstable/podX/ID"                       → itself
//	"kubepods-burstable-podX.slice:cri-containerd:ID"   → "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podX.slice/cri-containerd-ID.scope"
//
// As in runc, an empty slice is system.slice, an empty prefix is left out, and a name that ends in .slice is the unit
// itself.
func Container(cgroupsPath string) (string, error) {
	slice, rest, systemd := strings.Cut(cgroupsPath, ":")
	if !systemd {
		return plain(cgroupsPath)
	}
	prefix, name, ok := strings.Cut(rest, ":")
	if !ok || name == "" || strings.ContainsAny(name, ":/") || strings.Contains(prefix, "/") || name == ".slice" {
		return "", fmt.Errorf("%w: %.200q is not slice:prefix:name", ErrPath, cgroupsPath)
	}
	if slice == "" {
		slice = "system.slice"
	}
	dir, err := Slice(slice)
	if err != nil {
		return "", err
	}
	unit := name
	if !strings.HasSuffix(name, ".slice") {
		if prefix != "" {
			unit = prefix + "-" + name
		}
		unit += ".scope"
	}
	return plain(strings.TrimSuffix(dir, "/") + "/" + unit)
}

// Parent expands the cgroup parent of a CRI sandbox: a slice, alone or as kubelet's full path, or a cgroupfs directory.
//
//	"kubepods-burstable-podX.slice"  → "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podX.slice"
//	"/kubepods/burstable/podX"       → itself
//
// Of a path that ends in a slice only the last element counts, as in the runtimes.
func Parent(cgroupParent string) (string, error) {
	if base := path.Base(cgroupParent); strings.HasSuffix(base, ".slice") && !strings.Contains(base, ":") {
		return Slice(base)
	}
	return plain(cgroupParent)
}

// Sandbox is a pod's directory: the parent that the kubelet has asked for, or, where a runtime does not tell it, the one that
// the sandbox's own OCI linux.cgroupsPath stands in.
func Sandbox(cgroupParent, cgroupsPath string) (string, error) {
	if cgroupParent != "" {
		return Parent(cgroupParent)
	}
	dir, err := Container(cgroupsPath)
	if err != nil {
		return "", err
	}
	return PodDir(dir), nil
}

// Slice is the directory of a systemd slice: every dash opens a level. "-.slice" is the root.
func Slice(name string) (string, error) {
	stem, ok := strings.CutSuffix(name, ".slice")
	bad := !ok || stem == "" || len(name) > maxLen || strings.ContainsAny(name, "/\x00:")
	if name == "-.slice" {
		return "/", nil
	}
	if bad || strings.HasPrefix(stem, "-") || strings.HasSuffix(stem, "-") || strings.Contains(stem, "--") {
		return "", fmt.Errorf("%w: %.200q is not a slice", ErrPath, name)
	}
	if n := strings.Count(stem, "-"); n > 16 {
		return "", fmt.Errorf("%w: %.200q has %d levels", ErrPath, name, n)
	}
	var b strings.Builder
	for i := 0; i < len(stem); i++ {
		if stem[i] == '-' {
			b.WriteString("/" + stem[:i] + ".slice")
		}
	}
	b.WriteString("/" + name)
	return plain(b.String())
}

// Below is the directory name of dir, as a container's ID is of its pod. A name that is no single one is refused: "." is the
// pod itself, and ".." all pods of its class.
func Below(dir, name string) (string, error) {
	if name == "" || name == "." || strings.ContainsAny(name, "/:") {
		return "", fmt.Errorf("%w: %.200q is no name below %.200q", ErrPath, name, dir)
	}
	return plain(dir + "/" + name)
}

// plain cleans a cgroupfs path and refuses one that leaves the root or names it.
func plain(p string) (string, error) {
	if p == "" || len(p) > maxLen || strings.IndexByte(p, 0) >= 0 {
		return "", fmt.Errorf("%w: %.200q is empty, too long or has a NUL", ErrPath, p)
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return "", fmt.Errorf("%w: %.200q leaves the cgroup root", ErrPath, p)
		}
	}
	c := path.Clean("/" + p)
	if c == "/" {
		return "", fmt.Errorf("%w: %.200q is the root", ErrPath, p)
	}
	return c, nil
}

// Pod is what a pod's cgroup directory tells.
type Pod struct {
	// UID with dashes, as Kubernetes writes it. A static pod's 32 hex digits stay as they are.
	UID string
	QoS protocol.KubeQoS
	// QoSCgroup is the directory of the QoS class, Root that of all pods ("/kubepods.slice"); both are equal for
	// Guaranteed.
	QoSCgroup, Root string
	Systemd         bool
}

// OfPod reads a pod's directory, as Parent returns it. ok is false for a directory that is no pod's of a kubelet.
//
//	"/kubepods/besteffort/podUID"                                                → BestEffort
//	"/a.slice/a-kubepods.slice/a-kubepods-podU_I_D.slice"                        → Guaranteed, below prefix a
func OfPod(dir string) (Pod, bool) {
	parent, base := path.Split(dir)
	parent = strings.TrimSuffix(parent, "/")
	if parent == "" {
		return Pod{}, false
	}
	if stem, ok := strings.CutSuffix(base, ".slice"); ok {
		return ofSlice(parent, stem)
	}
	uid, ok := strings.CutPrefix(base, "pod")
	if !ok || uid == "" {
		return Pod{}, false
	}
	p := Pod{UID: uid, QoSCgroup: parent, Root: parent, QoS: protocol.KubeGuaranteed}
	switch path.Base(parent) {
	case "burstable":
		p.QoS, p.Root = protocol.KubeBurstable, path.Dir(parent)
	case "besteffort":
		p.QoS, p.Root = protocol.KubeBestEffort, path.Dir(parent)
	}
	return p, path.Base(p.Root) == "kubepods"
}

func ofSlice(parent, stem string) (Pod, bool) {
	i := strings.LastIndex(stem, "-pod")
	if i <= 0 || i+len("-pod") == len(stem) {
		return Pod{}, false
	}
	owner, uid := stem[:i], stem[i+len("-pod"):]
	if path.Base(parent) != owner+".slice" {
		return Pod{}, false
	}
	p := Pod{UID: strings.ReplaceAll(uid, "_", "-"), QoSCgroup: parent, Root: parent, QoS: protocol.KubeGuaranteed, Systemd: true}
	if all, ok := strings.CutSuffix(owner, "-burstable"); ok {
		owner, p.QoS, p.Root = all, protocol.KubeBurstable, path.Dir(parent)
	} else if all, ok := strings.CutSuffix(owner, "-besteffort"); ok {
		owner, p.QoS, p.Root = all, protocol.KubeBestEffort, path.Dir(parent)
	}
	return p, owner == "kubepods" || strings.HasSuffix(owner, "-kubepods")
}

// PodDir is the parent of a container's directory.
func PodDir(container string) string { return path.Dir(container) }
