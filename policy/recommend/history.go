// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommend

import (
	"errors"
	"strconv"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
)

// mostSamples is more than the pods of any workload leave.
const mostSamples = 1e15

// History is a container's as it is kept through restarts; its text is the business of the edge.
type History struct {
	Container   string
	CPU, Memory Series
	// Peak is the most memory since Since, which is 0 while there is none.
	Peak  float64
	Since predict.Wall
}

// Series is what is known of one resource.
type Series struct {
	Seen     predict.Wall
	Measured unit.Micros
	Samples  float64
	predict.Distribution
}

// Histories are all containers', in order of their names.
func (m *Model) Histories() []History {
	out := make([]History, 0, len(m.containers))
	for _, name := range m.names() {
		c := m.containers[name]
		out = append(out, History{Container: name, CPU: c.cpu.told(), Memory: c.memory.told(), Peak: c.peak, Since: c.since})
	}
	return out
}

func (s *series) told() Series {
	return Series{Seen: s.seen, Measured: unit.Micros(s.measured), Samples: s.samples, Distribution: s.histogram.Distribution()}
}

// Restore takes a container in, replacing what the model has of it. What no training can have left is an error, and the model is as
// before.
func (m *Model) Restore(h History) error {
	c := m.empty()
	if err := c.restore(h); err != nil {
		return errors.New("restore container " + strconv.Quote(h.Container) + ": " + err.Error())
	}
	if _, known := m.containers[h.Container]; !known && len(m.containers) >= MaxContainers {
		return errors.New("restore container " + strconv.Quote(h.Container) + ": there are " + strconv.Itoa(MaxContainers) + " already")
	}
	m.containers[h.Container] = c
	return nil
}

func (c *container) restore(h History) error {
	switch {
	case h.Container == "":
		return errors.New("it has no name")
	case h.Since < 0 || !(h.Peak >= 0 && h.Peak <= mostMemory):
		return errors.New("a peak of " + strconv.FormatFloat(h.Peak, 'g', 4, 64) + " bytes")
	}
	if err := c.cpu.restore(&h.CPU); err != nil {
		return errors.New("cpu: " + err.Error())
	}
	if err := c.memory.restore(&h.Memory); err != nil {
		return errors.New("memory: " + err.Error())
	}
	c.peak, c.since = h.Peak, h.Since
	return nil
}

func (s *series) restore(h *Series) error {
	if h.Seen < 0 || h.Measured < 0 || !(h.Samples >= 0 && h.Samples <= mostSamples) {
		return errors.New("measured for " + strconv.FormatInt(int64(h.Measured), 10) + " µs, " + strconv.FormatFloat(h.Samples, 'g', 4, 64) + " times")
	}
	if err := s.histogram.Restore(h.Distribution); err != nil {
		return err
	}
	s.seen, s.measured, s.samples = h.Seen, float64(h.Measured), h.Samples
	return nil
}
