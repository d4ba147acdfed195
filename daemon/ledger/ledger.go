// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/daemon/atomicfile"
	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/model/journal"
)

// Defaults of Options.
const (
	DefaultMaxBytes   = 8 << 20
	DefaultMaxRecords = 64 << 10
)

// hardFactor times MaxBytes (or times twice what compaction leaves, when that is more) is where Append refuses: the
// run directory is memory.
const hardFactor = 8

// recordBytes is room for most records, spareBytes the largest buffer that is kept.
const (
	recordBytes = 1 << 10
	spareBytes  = 256 << 10
)

// suffix of a writer's file.
const suffix = ".jsonl"

// Errors of Append.
var (
	// ErrFull says that the file has reached its hard bound; records are dropped until compaction makes room.
	ErrFull = errors.New("ledger is full")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("ledger is closed")
	// ErrTooLong says that one record alone is longer than a reader would accept; the others of the batch are kept.
	ErrTooLong = errors.New("record is too long")
)

var writerName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Options of a ledger. The zero value is good.
type Options struct {
	// MaxBytes and MaxRecords trigger compaction; 0 is the default. When more than half of that stays after a
	// compaction, the next one waits until the file has doubled.
	MaxBytes   int64
	MaxRecords int64
	// Newest is how many records a compaction leaves at most, the newest; 0 is all that matter. It is for what nobody restores from,
	// and whose targets nobody says are gone.
	Newest int
	// Failed is called by Run when a compaction fails; may be nil.
	Failed func(error)
}

// Stats are counters since Open.
type Stats struct {
	// Bytes and Records now in the file; Records counts from Open or the last compaction.
	Bytes, Records int64
	Compactions    int64
	// CompactionErr is the last compaction's error, nil when it went well.
	CompactionErr error
}

// Ledger is the append side of one process.
type Ledger struct {
	path string
	o    Options
	wake chan struct{}
	// spare is the last batch's buffer: a pool would lose it to two collections.
	spare atomic.Pointer[[]byte]

	same Same   // nil before Compare
	step func() // nil before Pace

	// mu guards the rest.
	mu sync.Mutex
	// f is nil before Open has succeeded and after Close. While the file that was removed cannot be made again it is that one.
	f      *os.File
	closed bool
	// cut is true when the file may end in the middle of a line.
	cut                      bool
	size, records            int64
	triggerBytes, triggerRec int64
	stats                    Stats
}

var _ journal.Journal = (*Ledger)(nil)

// Dir is the directory of the ledgers below the run directory.
func Dir(runDir string) string { return filepath.Join(runDir, "ledger") }

// Open opens or creates RunDir/ledger/WRITER.jsonl (0600, directory 0700).
func Open(runDir, writer string, o Options) (*Ledger, error) {
	l, err := New(runDir, writer, o)
	if err != nil {
		return nil, err
	}
	if err := l.Open(); err != nil {
		return nil, err
	}
	return l, nil
}

// New is a ledger that is not open yet, for who goes on without one: until it can be opened, Append keeps nothing and says why. The
// writer's name is made of lower-case letters, digits and dashes; one process at a time may use it (daemon/lock sees to that for
// daemons; commands that may run twice at once carry their pid in the name).
func New(runDir, writer string, o Options) (*Ledger, error) {
	if !writerName.MatchString(writer) {
		return nil, fmt.Errorf("open ledger: writer %q is no lower-case name", writer)
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxRecords <= 0 {
		o.MaxRecords = DefaultMaxRecords
	}
	return &Ledger{
		path: filepath.Join(Dir(runDir), writer+suffix), o: o, wake: make(chan struct{}, 1),
		triggerBytes: o.MaxBytes, triggerRec: o.MaxRecords,
	}, nil
}

// Compare has compactions compare values by same, as the kernel can hold them; without it, by their texts. It belongs before Run.
func (l *Ledger) Compare(same Same) { l.same = same }

// Pace has compactions call step between two lines, which may rest: decoding a whole file takes a processor for hundreds of milliseconds. It
// belongs before Run.
func (l *Ledger) Pace(step func()) { l.step = step }

// Open opens or creates the file. One that is open stays so.
func (l *Ledger) Open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil || l.closed {
		return l.missing()
	}
	if err := l.reopen(); err != nil {
		return err
	}
	atomicfile.Clean(l.path)
	l.wakeIfNeeded()
	return nil
}

// missing says that there is no file to write to, nil when there is. The caller holds mu.
func (l *Ledger) missing() error {
	switch {
	case l.closed:
		return ErrClosed
	case l.f == nil:
		return fmt.Errorf("ledger %s is not open", l.path)
	}
	return nil
}

// reopen opens the file by name and learns its size and whether its last line is whole.
func (l *Ledger) reopen() error {
	if err := atomicfile.Dir(filepath.Dir(l.path)); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("open ledger: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("open ledger: %w", err)
	}
	size, cut := st.Size(), false
	if size > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], size-1); err != nil {
			_ = f.Close()
			return fmt.Errorf("read end of ledger %s: %w", l.path, err)
		}
		cut = last[0] != '\n'
	}
	l.f, l.size, l.cut, l.records = f, size, cut, 0
	return nil
}

// Look makes the file anew where somebody has removed it, and says whether it did: for who may not append for long.
func (l *Ledger) Look() (again bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return false, nil // the next append opens it
	}
	return l.look()
}

// look is Look of a file that is open. Somebody may have cleaned the run directory, and records in a file without a name are of no use. The caller holds mu.
func (l *Ledger) look() (again bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(l.f.Fd()), &st); err != nil || st.Nlink > 0 {
		return false, nil
	}
	if err := l.remake(); err != nil {
		return false, err
	}
	return true, nil
}

// remake makes the file that has lost its name anew, with what it held: the values are in the kernel still, and what stood there before them is
// nowhere else. It comes by its name when it is whole. Where somebody else has written to a file of this name meanwhile that is taken instead, as it
// is: his next lines would be taken for ours. The caller holds mu.
func (l *Ledger) remake() error {
	if err := atomicfile.Dir(filepath.Dir(l.path)); err != nil {
		return err
	}
	old := l.f
	if st, err := os.Lstat(l.path); err == nil && st.Size() > 0 {
		if err := l.reopen(); err != nil {
			return err
		}
		_ = old.Close()
		return nil
	}
	tmp, err := atomicfile.Create(l.path)
	if err != nil {
		return err
	}
	if _, err = io.Copy(tmp, io.NewSectionReader(old, 0, l.size)); err == nil {
		err = l.take(tmp)
	}
	if err != nil {
		_ = tmp.Close()
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("make ledger %s anew: %w", l.path, err)
	}
	return nil
}

// Append writes the records with one write(2). An error (disk full, ErrFull, ErrClosed) means that the batch is not
// wholly kept; the caller counts it and goes on. A record without a time gets the present one. It never waits for the
// bulk of a compaction, only for the short swap at its end.
func (l *Ledger) Append(records ...journal.Record) error {
	if len(records) == 0 {
		return nil
	}
	bp := l.spare.Swap(nil)
	if bp == nil {
		b := make([]byte, 0, min(recordBytes*len(records), spareBytes))
		bp = &b
	}
	// The first byte is the newline that ends a line cut by an earlier, incomplete write.
	buf := append((*bp)[:0], '\n')
	var err error
	// The kernel's clock and none of this process's: records of two processes are put in order by it, and may be microseconds apart.
	up := uint64(boottime.Now())
	for i := range records {
		start := len(buf)
		buf = appendRecord(buf, &records[i], up)
		if len(buf)-start > maxLine {
			buf = buf[:start]
			err = fmt.Errorf("append %s of %s to ledger: %w", records[i].Knob, records[i].Target, ErrTooLong)
		}
	}
	if len(buf) > 1 {
		if werr := l.write(buf, int64(len(records))); werr != nil {
			err = werr
		}
	}
	if cap(buf) <= spareBytes {
		*bp = buf
		l.spare.Store(bp)
	}
	return err
}

// write appends buf, whose first byte is a newline to be used only when the file's last line is not whole.
func (l *Ledger) write(buf []byte, n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if l.f == nil { // it may be possible again
		if err := l.reopen(); err != nil {
			return err
		}
	}
	if l.size > hardFactor*l.o.MaxBytes && l.size > 2*l.triggerBytes {
		l.wakeIfNeeded()
		if err := l.stats.CompactionErr; err != nil {
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
		return ErrFull
	}
	if _, err := l.look(); err != nil {
		return err
	}
	if !l.cut {
		buf = buf[1:]
	}
	m, err := l.f.Write(buf)
	l.size += int64(m)
	l.cut = m > 0 && m < len(buf) || m == 0 && l.cut
	if err != nil {
		return fmt.Errorf("append to ledger: %w", err)
	}
	l.records += n
	l.wakeIfNeeded()
	return nil
}

// wakeIfNeeded asks Run for a compaction. The caller holds mu (or is the only user yet).
func (l *Ledger) wakeIfNeeded() {
	if l.size > l.triggerBytes || l.records > l.triggerRec {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Close closes the file. Run must have ended.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	if err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}

// Stats returns the counters.
func (l *Ledger) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Bytes, s.Records = l.size, l.records
	return s
}

// now is used for records that carry no time.
func now() time.Time { return time.Now() }
