// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile

import (
	"cmp"
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// Profile is one ClusterColocationProfile.
type Profile struct {
	Name string
	// Namespaces selects by the namespace's labels, Pods by the pod's.
	Namespaces, Pods *Selector
	// Probability is "", a whole number or a percentage ("50%"): the share of the selected pods that are changed.
	Probability string
	// KeepResources: the requests of the profile's pods are not translated.
	KeepResources bool

	Labels, Annotations                     map[string]string
	LabelKeysMapping, AnnotationKeysMapping map[string]string
	LabelSuffixes                           map[string]string
	SchedulerName                           string
	QoSClass                                string
	PriorityClassName                       string
	KoordinatorPriority                     *int32
	// Patched: a strategic merge patch follows what Apply does.
	Patched bool
}

// Choice is what Choose found.
type Choice struct {
	// Apply are the profiles to apply, in this order.
	Apply []Application
	// Translate: the pod's requests follow its class when all are applied.
	Translate bool
	// Record are the items of [protocol.AnnotationProfiles] when all of Apply is applied; none when no profile selects the pod.
	Record []string
	// Broken are profiles that mean nothing, whoever they were to select.
	Broken []Problem
	// Problems are profiles that would perhaps have selected this pod.
	Problems []Problem
}

// Application is a profile that is to be applied.
type Application struct {
	*Profile
	// Again: the pod's record says that it has been applied before.
	Again bool
}

// Namespace answers for a pod's namespace, asked only if some profile selects by it: reading it can cost a request.
type Namespace func() (labels map[string]string, err error)

// Choose finds the profiles that select a pod. All are chosen by the pod as it came, before any is applied (upstream).
//
// Chance is drawn by hashing draw, which must differ from pod to pod (the UID of the admission request: a pod that a
// ReplicaSet makes has neither name nor UID yet), with the profile's name: the same request has the same outcome, and p %
// takes p of 100 draws. A pod can come a second time, when another webhook has changed it: what a draw decided the first time,
// and labels that got a suffix then, stand, as the pod's record says; everything else is applied again, because a record can be
// made up.
func Choose(p *Pod, namespace Namespace, profiles []Profile, draw string) Choice {
	var out Choice
	keep, chosen := false, false
	earlier := readRecord(p.Annotations[protocol.AnnotationProfiles])
	for _, profile := range sorted(profiles) {
		percent, err := profile.check()
		if err != nil {
			out.Broken = append(out.Broken, Problem{At: "profile " + profile.Name, Reason: err.Error() + "; it is not applied"})
			continue
		}
		selected, err := profile.selects(p, namespace)
		if err != nil {
			out.Problems = append(out.Problems, Problem{At: "profile " + profile.Name, Reason: err.Error() + "; it is not applied"})
			continue
		}
		if !selected {
			continue
		}
		chosen = true
		keep = keep || profile.KeepResources
		was := earlier[profile.Name]
		chance := percent > 0 && percent < 100
		taken := percent >= 100 || chance && drawn(draw, profile.Name) < percent
		if chance && was != unseen {
			taken = was == applied
		}
		if !taken {
			out.Record = append(out.Record, "!"+profile.Name)
			continue
		}
		out.Record = append(out.Record, profile.Name)
		out.Apply = append(out.Apply, Application{Profile: profile, Again: was == applied})
	}
	out.Translate = chosen && !keep
	return out
}

// sorted is the profiles in order of names.
func sorted(profiles []Profile) []*Profile {
	out := make([]*Profile, len(profiles))
	for i := range profiles {
		out[i] = &profiles[i]
	}
	slices.SortFunc(out, func(a, b *Profile) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// check is the profile's probability, or why the profile means nothing.
func (f *Profile) check() (percent int, err error) {
	if err := f.Pods.check(); err != nil {
		return 0, errors.New("selector: " + err.Error())
	}
	if err := f.Namespaces.check(); err != nil {
		return 0, errors.New("namespaceSelector: " + err.Error())
	}
	return percentage(f.Probability)
}

// selects reports whether both selectors match.
func (f *Profile) selects(p *Pod, namespace Namespace) (bool, error) {
	if !f.Pods.matches(p.Labels) {
		return false, nil
	}
	if f.Namespaces.all() {
		return true, nil
	}
	labels, err := namespace()
	if err != nil {
		return false, err
	}
	return f.Namespaces.matches(labels), nil
}

// percentage reads a probability; outside 0..100 it is the nearer end, as upstream acts.
func percentage(s string) (int, error) {
	if s == "" {
		return 100, nil
	}
	v, err := strconv.Atoi(strings.TrimSuffix(s, "%"))
	if err != nil {
		return 0, errors.New("probability " + strconv.Quote(s) + ", want a whole number or a percentage such as 50%")
	}
	return min(max(v, 0), 100), nil
}

// drawn is a number 0..99 that depends on both words.
func drawn(draw, name string) int {
	h := fnv.New64a()
	h.Write([]byte(draw))
	h.Write([]byte{0})
	h.Write([]byte(name))
	v := h.Sum64()
	return int((v ^ v>>32) % 100) // FNV's low bits alone mix the last byte only
}

// What a record says of a profile.
type outcome uint8

const (
	unseen outcome = iota
	applied
	leftOut
)

// readRecord reads an earlier [Choice.Record]; whatever else stands there is names of no profile.
func readRecord(s string) map[string]outcome {
	if s == "" || len(s) > protocol.MaxValueBytes {
		return nil
	}
	out := map[string]outcome{}
	for item := range strings.SplitSeq(s, ",") {
		if name, ok := strings.CutPrefix(item, "!"); ok {
			out[name] = leftOut
		} else {
			out[item] = applied
		}
	}
	return out
}
