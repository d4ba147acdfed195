// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package hostapp decides what the cgroup of a host application must have: programs outside Kubernetes that take part in
// QoS by NodeSLO's hostApplications.
//
// Inputs are a node.View and a strategy.HostApplication, outputs its cgroup and a plan: the CPU identity of its class, and
// for BE the CPUs of the suppression set, for LS those of the share pools. It imports model, api, policy/draft and the standard library only; never os, net,
// log, fmt or time.
package hostapp

import (
	"errors"
	"path"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// Roots are the kubelet's directories on this node, below the cgroup root with a leading slash.
type Roots struct {
	Kubepods, Burstable, BestEffort string
}

// Directories of applications that name none.
const (
	latencySensitive = "/host-latency-sensitive"
	bestEffort       = "/host-best-effort"
)

// Cgroup is the application's directory below the cgroup root:
//
//	base / parentDir / relativePath      as cgroupPath says; base CgroupRoot is the root
//	/host-latency-sensitive/<name>       without cgroupPath
//	/host-best-effort/<name>             without cgroupPath, QoS BE
//
// An error wraps ErrUnknown while the base is not known, and else says why this can be no application's: at the root and at or above
// the kubelet's own directories what is set is set for every pod, and a pod is somebody already.
func Cgroup(app *strategy.HostApplication, roots Roots) (dir string, err error) {
	p := app.CgroupPath
	switch {
	case app.Name == "" || strings.Contains(app.Name, "/") || strings.HasPrefix(app.Name, "."):
		return "", errors.New("this is no name of a directory")
	case p == nil && app.QoS == protocol.QoSBE.String():
		return bestEffort + "/" + app.Name, nil
	case p == nil:
		return latencySensitive + "/" + app.Name, nil
	}
	base := "/"
	switch p.Base {
	case strategy.BaseKubepods:
		base = roots.Kubepods
	case strategy.BaseKubepodsBurstable:
		base = roots.Burstable
	case strategy.BaseKubepodsBestEff:
		base = roots.BestEffort
	case "", strategy.BaseCgroupRoot:
	default:
		return "", errors.New("cgroupPath.base " + strconv.Quote(p.Base) + " is not known")
	}
	if base == "" {
		return "", ErrUnknown
	}
	// Each part is anchored by itself, so that none can climb out of what stands before it.
	dir = path.Join(base, path.Clean("/"+p.ParentDir), path.Clean("/"+p.RelativePath))
	if dir == "/" {
		return "", errors.New("its cgroup is the root of all")
	}
	// The default directories count also while nothing tells of any.
	for _, kubelet := range [...]string{roots.Kubepods, roots.Burstable, roots.BestEffort, "/kubepods", "/kubepods.slice"} {
		if kubelet != "" && Within(kubelet, dir) {
			return "", errors.New("its cgroup " + dir + " holds the kubelet's " + kubelet)
		}
	}
	for at := dir; at != "/"; at = path.Dir(at) {
		if _, ok := cgrouppath.OfPod(at); ok {
			return "", errors.New("its cgroup " + dir + " belongs to a pod")
		}
	}
	return dir, nil
}

// ErrUnknown: where the kubelet's directories are shows in a pod's, and there is none yet.
var ErrUnknown = errors.New("where the kubelet's directories are is not known yet")

// Within reports whether a directory is another one or below it.
func Within(dir, other string) bool { return dir == other || strings.HasPrefix(dir, other+"/") }

// Decide returns what the application's cgroup must have. An application without QoS has nothing. The kernel's bvt carries
// the class' identity; elsewhere a BE application is idle among its neighbours, but not where its cgroup is a systemd unit:
// the next weight that systemd writes would be refused.
func Decide(v *node.View, app *strategy.HostApplication, dir string) plan.Plan {
	qos, known := protocol.ParseQoS(app.QoS)
	if !known || qos == protocol.QoSNone {
		return nil
	}
	p := workload.Pod{Name: app.Name, Cgroup: dir, Ask: protocol.Ask{QoS: qos}}
	d := draft.New(v, &p, plan.Target{Level: plan.LevelQoS, Cgroup: dir, Name: "hostapp/" + app.Name})
	if id, ok := d.Identity(); ok {
		if id.HasBvt {
			d.Set(protocol.FeatureIdentity, plan.CPUBvt, plan.Int(id.Bvt), id.Why)
		} else if id.Idle && !unit(dir) {
			d.Set(protocol.FeatureIdentity, plan.CPUIdle, plan.Int(1), id.Why+": idle among its neighbours")
		}
	}
	if set, why := cpus(v, qos); !set.Empty() {
		d.Set(protocol.FeatureCPUSet, plan.CPUSetCPUs, plan.Text(set.String()), why)
	}
	return d.Plan
}

// cpus are those of the class: the suppression set of BE, the share pools of LS while they are not the whole node. Empty: it is left where
// it is. LSR and LSE applications have none, because no scheduler has given them any.
func cpus(v *node.View, qos protocol.QoS) (set topo.CPUSet, why string) {
	if !v.Dynamic.Known || v.Topology == nil {
		return set, ""
	}
	all := v.Topology.All()
	switch qos {
	case protocol.QoSBE:
		return v.Dynamic.BECPUs.Intersect(all), "suppression set"
	case protocol.QoSLS:
		for i := range v.Dynamic.SharePools {
			set = set.Union(v.Dynamic.SharePools[i].CPUs)
		}
		if set = set.Intersect(all); all.SubsetOf(set) {
			return topo.CPUSet{}, ""
		}
	case protocol.QoSNone, protocol.QoSSystem, protocol.QoSLSR, protocol.QoSLSE:
	}
	return set, "share pools"
}

// unit reports that a directory is a systemd unit's.
func unit(dir string) bool {
	for _, suffix := range [...]string{".slice", ".service", ".scope"} {
		if strings.HasSuffix(dir, suffix) {
			return true
		}
	}
	return false
}
