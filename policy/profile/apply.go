// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// Class is a PriorityClass object.
type Class struct {
	Value int32
	// PreemptionPolicy is "" where the object says nothing.
	PreemptionPolicy string
}

// maxLabel is the longest label value that the API server takes.
const maxLabel = 63

// Apply does what a profile says, up to its patch. class is the object that PriorityClassName names, nil when there is none:
// then nothing is applied, because a pod that is BE without a priority would be refused. The API server demands that a pod's
// priority and preemption policy are its class' (admission plugin Priority), so all three are set.
func Apply(p *Pod, f Application, class *Class) ([]Problem, error) {
	if f.PriorityClassName != "" && class == nil {
		return nil, errors.New("there is no PriorityClass " + strconv.Quote(f.PriorityClassName) + "; create it")
	}
	problems := f.labels(p)
	for key, value := range f.Annotations {
		p.Annotate(key, value)
	}
	for _, from := range slices.Sorted(maps.Keys(f.AnnotationKeysMapping)) {
		p.Annotate(f.AnnotationKeysMapping[from], p.Annotations[from])
	}
	if f.SchedulerName != "" && !p.keepsScheduler() {
		p.SchedulerName = f.SchedulerName
	}
	if f.QoSClass != "" {
		p.label(protocol.LabelQoSClass, f.QoSClass)
	}
	if f.PriorityClassName != "" {
		value := class.Value
		p.PriorityClassName, p.Priority, p.PreemptionPolicy = f.PriorityClassName, &value, class.PreemptionPolicy
	}
	if f.KoordinatorPriority != nil {
		p.label(protocol.LabelPriority, strconv.Itoa(int(*f.KoordinatorPriority)))
	}
	return problems, nil
}

// labels sets and maps labels and appends suffixes. A suffix that has been appended before is not appended again, and what is
// set or mapped then would take it off.
func (f Application) labels(p *Pod) []Problem {
	if f.Again && len(f.LabelSuffixes) > 0 {
		return nil
	}
	for key, value := range f.Labels {
		p.label(key, value)
	}
	for _, from := range slices.Sorted(maps.Keys(f.LabelKeysMapping)) { // one may read what another has written
		p.label(f.LabelKeysMapping[from], p.Labels[from]) // a label that is not there counts as empty (upstream)
	}
	var problems []Problem
	for _, key := range slices.Sorted(maps.Keys(f.LabelSuffixes)) {
		value, ok := p.Labels[key]
		switch {
		case !ok:
		case len(value)+len(f.LabelSuffixes[key]) > maxLabel:
			problems = append(problems, Problem{At: "profile " + f.Name, Reason: "label " + key + " would be longer than " +
				strconv.Itoa(maxLabel) + " with its suffix; it stays as it is"})
		default:
			p.label(key, value+f.LabelSuffixes[key])
		}
	}
	return problems
}

// keepsScheduler reports whether the pod opts out of every change to its scheduler name.
func (p *Pod) keepsScheduler() bool { return p.Labels[protocol.KeyKeepScheduler] == "true" }
