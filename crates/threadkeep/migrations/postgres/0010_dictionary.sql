-- Content may be compressed with a dictionary: the bit 8 of items.encoding, blobs.encoding, checkpoint_states.encoding and
-- document_versions.encoding says so. The dictionary is dictionaries/0001.zdict of the library, the same for all stores and for ever.
-- No table changes. The step is there so that a version that does not know the dictionary refuses the store, in place of calling
-- what it can't read damaged.
SELECT 1;
