// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

var errNoSubject = errors.New("no such pod or container in the ledger")

// choose turns "namespace/pod", "namespace/pod/container", a pod UID or a prefix of a container id ("containerd://" may
// stand before it) into a filter of targets. A pod takes its containers along.
func choose(records []journal.Record, arg string) (func(*plan.Target) bool, error) {
	if _, id, ok := strings.Cut(arg, "://"); ok {
		arg = id
	}
	if arg == "" {
		return nil, errNoSubject
	}
	pods, ids := map[string]bool{}, map[string]string{}
	for i := range records {
		t := &records[i].Target
		switch {
		case t.Pod != "" && (t.Pod == arg || podName(t) == arg):
			pods[t.Pod] = true
		case t.Container != "" && (t.Name == arg || len(arg) >= 4 && strings.HasPrefix(t.Container, arg)):
			ids[t.Container] = t.Name
		}
	}
	named := strings.Contains(arg, "/")
	switch {
	case len(pods) > 0:
		// A pod made anew under one name has another UID; both may be in the ledger, gone targets are dropped later.
		return func(t *plan.Target) bool { return pods[t.Pod] }, nil
	case len(ids) == 0:
		return nil, fmt.Errorf("%w: %q; give namespace/pod, namespace/pod/container, a pod UID or at least 4 characters of a container id "+
			"(is the pod on this node, and was it created after koord-nri was installed? `koordctl diff --all` lists everything)", errNoSubject, arg)
	case len(ids) > 1 && !named:
		return nil, fmt.Errorf("container id %q is ambiguous: %s", arg, strings.Join(slices.Sorted(maps.Keys(ids)), ", "))
	}
	return func(t *plan.Target) bool { _, ok := ids[t.Container]; return ok }, nil
}

// podName is "namespace/pod" of a pod's or a container's target.
func podName(t *plan.Target) string {
	if t.Level != plan.LevelContainer {
		return t.Name
	}
	if i := strings.LastIndexByte(t.Name, '/'); i >= 0 {
		return t.Name[:i]
	}
	return ""
}
