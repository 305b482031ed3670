package redis

import (
	"strconv"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// occupancy reads what acquire and inspect tell of a key that is taken: the
// reply from field 1 on.
func (c *call) occupancy() (locker.Occupancy, error) {
	left, err := c.number(1)
	if err != nil {
		return locker.Occupancy{}, err
	}
	var texts [4]string // value, since, note, whose record it is
	for i := range texts {
		if texts[i], err = c.text(2 + i); err != nil {
			return locker.Occupancy{}, err
		}
	}
	length, err := c.number(6)
	if err != nil {
		return locker.Occupancy{}, err
	}
	o := locker.Occupancy{
		State:       locker.OccupancyHeld,
		ExpiresIn:   time.Duration(left) * time.Millisecond,
		QueueLength: int(length),
		Mark:        locker.MarkOf(texts[0]),
	}
	pod, tombstone, ours := locker.ReadValue(texts[0])
	if !ours {
		return o, nil
	}
	o.Holder = &locker.Holder{Pod: pod}
	switch {
	case tombstone == locker.TombstoneMinHold:
		o.State = locker.OccupancyMinHold // left by the holder that the record is of
	case tombstone == locker.TombstoneBroken && pod == "":
		// Nothing is known of the one that it was taken from; the record, if
		// there is one, is older.
		return locker.Occupancy{State: locker.OccupancyBroken, ExpiresIn: o.ExpiresIn, QueueLength: o.QueueLength, Mark: o.Mark}, nil
	case tombstone == locker.TombstoneBroken:
		o.State = locker.OccupancyBroken
	case texts[3] != "same":
		return o, nil
	}
	if micros, err := strconv.ParseInt(texts[1], 10, 64); err == nil {
		o.Holder.Since = time.UnixMicro(micros)
	}
	o.Holder.Note = texts[2]
	return o, nil
}
