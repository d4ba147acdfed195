// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// booked are the limits of a pod's first container in batch resources: thousandths of a CPU, and bytes.
func booked(pod cluster.Object) (milli, bytes int64, err error) {
	read := func(name string) int64 {
		q, bad := resource.ParseQuantity(pod.Str("spec", "containers", 0, "resources", "limits", name))
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("limit %s: %w", name, bad))
		}
		return q.Value()
	}
	return read(protocol.ResourceBatchCPU), read(protocol.ResourceBatchMemory), err
}

// madeBatch is an error unless admission has made what the profile says of a Deployment's pod: the template's CPU and memory, in
// batch resources and in the annotation by which the node knows them.
func madeBatch(template, pod cluster.Object) error {
	var errs []error
	if got := pod.Str("metadata", "labels", protocol.LabelQoSClass); got != "BE" || pod.Str("spec", "priorityClassName") != "koord-batch" || pod.Int("spec", "priority") != 5000 {
		errs = append(errs, fmt.Errorf("class %q, priority class %q (%d)", got, pod.Str("spec", "priorityClassName"), pod.Int("spec", "priority")))
	}
	milli, bytes, err := booked(pod)
	errs = append(errs, err)
	limits := []any{"spec", "containers", 0, "resources", "limits"}
	cpu, err := resource.ParseQuantity(template.Str(append(limits, "cpu")...))
	memory, err2 := resource.ParseQuantity(template.Str(append(limits, "memory")...))
	errs = append(errs, err, err2)
	if cpu.MilliValue() != milli || memory.Value() != bytes || pod.At(append(limits, "cpu")...) != nil {
		errs = append(errs, fmt.Errorf("limits %s of %s", pod.Compact(limits...), template.Compact(limits...)))
	}
	text := pod.Str("metadata", "annotations", protocol.AnnotationExtendedResource)
	said, err := protocol.ParseExtendedResource(text)
	if l := said[pod.Str("spec", "containers", 0, "name")].Limits; err != nil || l.BatchCPU == nil || l.BatchMemory == nil || *l.BatchCPU != milli || *l.BatchMemory != bytes {
		errs = append(errs, fmt.Errorf("annotation %s is %q: %w", protocol.AnnotationExtendedResource, text, errors.Join(err, errors.New("not the limits"))))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("pod %s/%s is not what the profile says: %w", shop, pod.Str("metadata", "name"), err)
	}
	return nil
}

// period is in which a quota counts, in µs.
const period = 100_000

// heldBy is an error unless the kernel holds a container to the pod's batch resources. at is the container, without a file.
func heldBy(got reading, at place, pod cluster.Object) error {
	milli, bytes, err := booked(pod)
	if err != nil {
		return err
	}
	quota := strconv.FormatInt(milli*period/1000, 10)
	want := map[string]string{
		"cpu.cfs_quota_us": quota, "cpu.max": quota + " " + strconv.Itoa(period),
		"memory.limit_in_bytes": strconv.FormatInt(bytes, 10), "memory.max": strconv.FormatInt(bytes, 10),
	}
	held := 0
	for file, value := range want {
		at.file = file
		v, is := got[at]
		if is && v != value {
			return fmt.Errorf("%s of %s/%s is %q, and its batch resources say %q", file, at.pod, at.container, v, value)
		}
		if is {
			held++
		}
	}
	if held != 2 {
		return fmt.Errorf("the kernel shows %d of two limits of %s/%s", held, at.pod, at.container)
	}
	return nil
}
